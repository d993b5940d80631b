package envoy

import (
	"fmt"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	modulesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/dynamic_modules/v3"
	compositev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	modulefilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_modules/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	inputv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	metadatamatchv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/input_matchers/metadata/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sandlane/sandlane/extproc"
)

// moduleName is the name of the filter that answers hits from the gateway's table.
const moduleName = "sandlane.fastpath"

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

// FastPath are the module and its table (docs/design/fastpath.md).
type FastPath struct {
	// Module is the module's file.
	Module string
	// Folder is the gateway's folder of the table.
	Folder string
}

// given reports whether hits are answered in Envoy.
func (f FastPath) given() bool { return f != FastPath{} }

// routingFilters are ExtProc alone, or the module and ExtProc for what the module left
// open: requests without a destination.
func routingFilters(o *Options) []*hcmv3.HttpFilter {
	ask := extProcFilter(o)
	if !o.FastPath.given() {
		return []*hcmv3.HttpFilter{ask}
	}
	return []*hcmv3.HttpFilter{moduleFilter(o.FastPath), withoutDestination(ask)}
}

func moduleFilter(f FastPath) *hcmv3.HttpFilter {
	return httpFilter(moduleName, &modulefilterv3.DynamicModuleFilter{
		DynamicModuleConfig: &modulesv3.DynamicModuleConfig{
			Module: &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{Local: &corev3.DataSource{
				Specifier: &corev3.DataSource_Filename{Filename: f.Module},
			}}},
			DoNotClose: true, // requests may be inside it
		},
		FilterName:   "route",
		FilterConfig: mustAny(wrapperspb.String(f.Folder)),
	})
}

// withoutDestination makes a filter run only for requests that have no destination
// yet: for the others it is not even made.
func withoutDestination(f *hcmv3.HttpFilter) *hcmv3.HttpFilter {
	destination := &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
		Input: extension("destination", &inputv3.DynamicMetadataInput{
			Filter: extproc.MetadataNamespace,
			Path: []*inputv3.DynamicMetadataInput_PathSegment{{
				Segment: &inputv3.DynamicMetadataInput_PathSegment_Key{Key: extproc.MetadataDestination},
			}},
		}),
		Matcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_CustomMatch{
			CustomMatch: extension("present", &metadatamatchv3.Metadata{
				Value: &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_PresentMatch{PresentMatch: true}},
			}),
		},
	}
	none := &xdsmatcherv3.Matcher_MatcherList_Predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_NotMatcher{
		NotMatcher: &xdsmatcherv3.Matcher_MatcherList_Predicate{
			MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{SinglePredicate: destination},
		},
	}}
	run := extension("run", &compositev3.ExecuteFilterAction{
		TypedConfig: &corev3.TypedExtensionConfig{Name: f.GetName(), TypedConfig: f.GetTypedConfig()},
	})
	return httpFilter(f.GetName(), &matchingv3.ExtensionWithMatcher{
		ExtensionConfig: &corev3.TypedExtensionConfig{Name: "composite", TypedConfig: mustAny(&compositev3.Composite{})},
		XdsMatcher: &xdsmatcherv3.Matcher{MatcherType: &xdsmatcherv3.Matcher_MatcherList_{
			MatcherList: &xdsmatcherv3.Matcher_MatcherList{Matchers: []*xdsmatcherv3.Matcher_MatcherList_FieldMatcher{{
				Predicate: none,
				OnMatch:   &xdsmatcherv3.Matcher_OnMatch{OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{Action: run}},
			}}},
		}},
	})
}

func extension(name string, config proto.Message) *xdscorev3.TypedExtensionConfig {
	return &xdscorev3.TypedExtensionConfig{Name: name, TypedConfig: mustAny(config)}
}

// moduleOff keeps the module away from a route.
func moduleOff() *anypb.Any { return mustAny(&routev3.FilterConfig{Disabled: true}) }
