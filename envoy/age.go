package envoy

import (
	_ "embed"
	"fmt"
	"time"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modulefilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_modules/v3"
	headerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	codecv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/extproc"
)

//go:embed age.lua
var ageScript string

const (
	// ageName is the module's filter; it is not moduleName, which routes without hits switch off.
	ageName = "sandlane.age"
	// attemptHeader tells the age filter of an attempt (ATTEMPT in fastpath/module). Its
	// prefix is one that clients' headers never keep, and the age filter takes it away.
	attemptHeader = "x-envoy-sandlane-attempt"
	// attemptFormat is the number of the open connection that the attempt has got, 0 if it
	// waits for one; then how many bytes earlier attempts sent to the pod, and got from it;
	// then how many bytes the client's body has, and how long it took to come, no number
	// until it is there as a whole. The script has no other way to see that there is none:
	// its body() may say so of one that came between two attempts.
	attemptFormat = "%UPSTREAM_CONNECTION_ID% %UPSTREAM_WIRE_BYTES_SENT% %UPSTREAM_WIRE_BYTES_RECEIVED% %BYTES_RECEIVED% %REQUEST_DURATION%"
)

// ageFilters are run at each attempt to send a request to a pod, after Envoy has begun the
// connection and before it sends a byte: they refuse an answer that is older than MaxAge
// (docs/design/design.md 4.2), and to send a request twice that may not be repeated
// (docs/design/decisions/repeats.md). The module does it where it is loaded, since it knows
// when it answered; without it a script does.
//
// An attempt, as the filter sees it:
//
//	unsent, new connection   0 bytes sent, number 0: noted as opened; sent if the answer is
//	                         at most MaxAge old, else 503
//	unsent, kept connection  0 bytes sent, a number: the same, not noted
//	sent                     bytes sent: repeated if every condition of repeats.md holds,
//	                         else 502; there is no third attempt
//
// What was sent reaches no other sandbox when it is repeated:
//
//	the kept connection is to a former pod   the second attempt calls connect within
//	of the address, whose next pod resets    RepeatAge of the answer, or takes another kept
//	it                                       connection, which that pod resets too
//	Envoy stands still between the attempts  the check is after connect and sees the time:
//	or between connect and the check         502
//	the sandbox ends between the attempts    as between answer and first attempt
//	the header is missing or unexpected, or  counts as sent and partly answered: 502
//	metadata cannot be noted
//	a connection opened for a request that   counts as kept: what closes it was no answer to
//	left is used first by another            either
func ageFilters(o *Options) []*hcmv3.HttpFilter {
	age := httpFilter("envoy.filters.http.lua", &luav3.Lua{DefaultSourceCode: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{
		InlineString: fmt.Sprintf("local namespace, key, longest, repeats, attempt, broken = %q, %q, %d, %d, %q, %q\n",
			extproc.MetadataNamespace, extproc.MetadataAnswered, MaxAge/time.Millisecond, RepeatAge/time.Millisecond, attemptHeader, extproc.MetadataBroken) + ageScript,
	}}})
	if o.FastPath.given() {
		age = httpFilter(ageName, &modulefilterv3.DynamicModuleFilter{DynamicModuleConfig: o.FastPath.module(), FilterName: "age"})
	}
	return []*hcmv3.HttpFilter{attemptFilter(), age, httpFilter("envoy.filters.http.upstream_codec", &codecv3.UpstreamCodec{})}
}

// attemptFilter writes attemptHeader, which only the next filter sees.
func attemptFilter() *hcmv3.HttpFilter {
	return httpFilter("envoy.filters.http.header_mutation", &headerv3.HeaderMutation{Mutations: &headerv3.Mutations{
		RequestMutations: []*mutationv3.HeaderMutation{{Action: &mutationv3.HeaderMutation_Append{Append: &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: attemptHeader, Value: attemptFormat},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		}}}},
	}})
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
