package envoy

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	modulesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/dynamic_modules/v3"
	modulefilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_modules/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlymodulev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/dynamic_modules/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	// moduleName is the name of the filter that answers hits.
	moduleName = "sandlane.fastpath"
	// hitHeader is what the module writes into a request that it answers (HIT in
	// fastpath/module). Its prefix is one that clients' headers never keep
	// (dropInternalHeaders).
	hitHeader = "x-envoy-sandlane"
)

// FastPathVersions are the Envoys that the module of the fast path was tested with. A
// module of another interface is loaded with a warning at most, so it must be known.
var FastPathVersions = []string{"1.40.0"}

// FastPathProven returns why the fast path must be off on an architecture; nil where the
// order of memory accesses that it relies on was checked.
func FastPathProven(arch string) error {
	if arch != "amd64" {
		return fmt.Errorf("the fast path is not proven on %s", arch)
	}
	return nil
}

// FastPath is the module that answers hits inside Envoy, and its table
// (docs/design/fastpath.md). The module finds hits before Envoy picks a route, and hits
// have an Envoy route of their own (docs/design/decisions/hits-before-the-route.md).
type FastPath struct {
	// Module is the module's file.
	Module string
	// Folder is the gateway's folder of the table.
	Folder string
}

// given reports whether hits are answered in Envoy.
func (f FastPath) given() bool { return f != FastPath{} }

// earlyMutations change requests before a route is picked: clients' internal headers go,
// and then the module looks the sandbox up.
func earlyMutations(o *Options) []*corev3.TypedExtensionConfig {
	all := []*corev3.TypedExtensionConfig{dropInternalHeaders()}
	if o.FastPath.given() {
		all = append(all, &corev3.TypedExtensionConfig{
			Name: "envoy.http.early_header_mutation.dynamic_modules",
			TypedConfig: mustAny(&earlymodulev3.DynamicModuleEarlyHeaderMutation{
				DynamicModuleConfig:       o.FastPath.module(),
				EarlyHeaderMutationName:   "route",
				EarlyHeaderMutationConfig: mustAny(wrapperspb.String(o.FastPath.Folder)),
			}),
		})
	}
	return all
}

// routingFilters returns ExtProc's filter and, with the fast path, the module's. The route
// of hits switches ExtProc off; every other route switches the module off.
func routingFilters(o *Options) []*hcmv3.HttpFilter {
	if !o.FastPath.given() {
		return []*hcmv3.HttpFilter{extProcFilter(o)}
	}
	module := httpFilter(moduleName, &modulefilterv3.DynamicModuleFilter{DynamicModuleConfig: o.FastPath.module(), FilterName: "route"})
	return []*hcmv3.HttpFilter{module, extProcFilter(o)}
}

func (f FastPath) module() *modulesv3.DynamicModuleConfig {
	return &modulesv3.DynamicModuleConfig{
		Module: &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{Local: &corev3.DataSource{
			Specifier: &corev3.DataSource_Filename{Filename: f.Module},
		}}},
		DoNotClose: true, // requests may be inside it
	}
}

// withHits puts the routes of hits before all others. They may come before the API's: the
// module answers nothing that is the API's (TestModuleSeesTheSameTarget).
func withHits(others []*routev3.Route) []*routev3.Route {
	for _, r := range others {
		if r.TypedPerFilterConfig == nil {
			r.TypedPerFilterConfig = map[string]*anypb.Any{}
		}
		r.TypedPerFilterConfig[moduleName] = filterOff()
	}
	hits := []*routev3.Route{repeatableRoute(), sandboxRoute()}
	for _, r := range hits {
		r.Match.Headers = append(r.Match.Headers, &routev3.HeaderMatcher{
			Name: hitHeader, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true},
		})
		r.RequestHeadersToRemove = []string{hitHeader}
		r.TypedPerFilterConfig = map[string]*anypb.Any{extProcName: filterOff()}
	}
	return append(hits, others...)
}

// filterOff keeps a filter away from a route: it is not even made.
func filterOff() *anypb.Any { return mustAny(&routev3.FilterConfig{Disabled: true}) }
