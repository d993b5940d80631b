package envoy

import (
	_ "embed"
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modulefilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_modules/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	codecv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/extproc"
)

//go:embed age.lua
var ageScript string

// ageName is the module's filter; it is not moduleName, which routes without hits switch off.
const ageName = "sandlane.age"

// ageFilters are run at each attempt to send a request to a pod, after Envoy has begun the
// connection and before it sends a byte: they refuse an answer that is older than MaxAge
// (docs/design/design.md 4.2). The module does it where it is loaded, since it knows when it
// answered; without it a script does.
func ageFilters(o *Options) []*hcmv3.HttpFilter {
	age := httpFilter("envoy.filters.http.lua", &luav3.Lua{DefaultSourceCode: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{
		InlineString: fmt.Sprintf("local namespace, key, longest = %q, %q, %d\n", extproc.MetadataNamespace, extproc.MetadataAnswered, MaxAge/time.Millisecond) + ageScript,
	}}})
	if o.FastPath.given() {
		age = httpFilter(ageName, &modulefilterv3.DynamicModuleFilter{DynamicModuleConfig: o.FastPath.module(), FilterName: "age"})
	}
	return []*hcmv3.HttpFilter{age, httpFilter("envoy.filters.http.upstream_codec", &codecv3.UpstreamCodec{})}
}

// shortConnect has the kernel give a connection up 3 s after its first SYN, also while Envoy
// stands still. 1 stands for the time that one more SYN takes if the wait doubles (1 s, then
// 2 s); from Linux 6.5 on two more are sent in that time, a second apart.
func shortConnect() *corev3.SocketOption {
	return &corev3.SocketOption{
		Description: "SYNs after the first",
		Level:       unix.IPPROTO_TCP, Name: unix.TCP_SYNCNT,
		Value: &corev3.SocketOption_IntValue{IntValue: 1},
		State: corev3.SocketOption_STATE_PREBIND,
	}
}
