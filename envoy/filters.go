package envoy

import (
	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	responsev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/custom_response/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	localresponsev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/custom_response/local_response_policy/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sandlane/sandlane/extproc"
)

const extProcName = "envoy.filters.http.ext_proc"

// extProcFilter asks the gateway once per request, with the headers alone. No
// answer is an error, and the answer cannot change more than the path, the cookies and
// two headers of an immediate answer.
func extProcFilter(o *Options) *hcmv3.HttpFilter {
	var forward []*matcherv3.StringMatcher
	for _, h := range extproc.ForwardedHeaders() {
		forward = append(forward, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: h}})
	}
	return httpFilter(extProcName, &extprocv3.ExternalProcessor{
		GrpcService:       gatewayService(),
		FailureModeAllow:  false,
		MessageTimeout:    durationpb.New(o.MessageTimeout),
		MaxMessageTimeout: durationpb.New(o.MaxMessageTimeout),
		ProcessingMode: &extprocv3.ProcessingMode{
			RequestHeaderMode:   extprocv3.ProcessingMode_SEND,
			ResponseHeaderMode:  extprocv3.ProcessingMode_SKIP,
			RequestBodyMode:     extprocv3.ProcessingMode_NONE,
			ResponseBodyMode:    extprocv3.ProcessingMode_NONE,
			RequestTrailerMode:  extprocv3.ProcessingMode_SKIP,
			ResponseTrailerMode: extprocv3.ProcessingMode_SKIP,
		},
		MetadataOptions: &extprocv3.MetadataOptions{
			ReceivingNamespaces: &extprocv3.MetadataOptions_MetadataNamespaces{Untyped: []string{extproc.MetadataNamespace}},
		},
		MutationRules: &mutationv3.HeaderMutationRules{
			DisallowAll:     wrapperspb.Bool(true),
			AllowExpression: &matcherv3.RegexMatcher{Regex: "^(:path|cookie|retry-after|content-type)$"},
		},
		RouteCacheAction: extprocv3.ExternalProcessor_RETAIN,
		ForwardRules:     &extprocv3.HeaderForwardingRules{AllowedHeaders: &matcherv3.ListStringMatcher{Patterns: forward}},
	})
}

// badStatusFilter answers 502 for a server whose status has not three digits, or begins
// with a zero.
func badStatusFilter() *hcmv3.HttpFilter {
	status := &xdsmatcherv3.Matcher_MatcherList_Predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{
		SinglePredicate: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
			Input: &xdscorev3.TypedExtensionConfig{Name: "status", TypedConfig: mustAny(&matcherv3.HttpResponseStatusCodeMatchInput{})},
			Matcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: &xdsmatcherv3.StringMatcher{
				MatchPattern: &xdsmatcherv3.StringMatcher_SafeRegex{SafeRegex: &xdsmatcherv3.RegexMatcher{
					EngineType: &xdsmatcherv3.RegexMatcher_GoogleRe2{GoogleRe2: &xdsmatcherv3.RegexMatcher_GoogleRE2{}},
					Regex:      "[1-9][0-9][0-9]",
				}},
			}},
		},
	}}
	return httpFilter("envoy.filters.http.custom_response", &responsev3.CustomResponse{CustomResponseMatcher: &xdsmatcherv3.Matcher{
		MatcherType: &xdsmatcherv3.Matcher_MatcherList_{MatcherList: &xdsmatcherv3.Matcher_MatcherList{
			Matchers: []*xdsmatcherv3.Matcher_MatcherList_FieldMatcher{{
				Predicate: &xdsmatcherv3.Matcher_MatcherList_Predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_NotMatcher{NotMatcher: status}},
				OnMatch: &xdsmatcherv3.Matcher_OnMatch{OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{Action: &xdscorev3.TypedExtensionConfig{
					Name:        "bad status",
					TypedConfig: mustAny(&localresponsev3.LocalResponsePolicy{StatusCode: wrapperspb.UInt32(502)}),
				}}},
			}},
		}},
	}})
}

func routerFilter() *hcmv3.HttpFilter {
	return httpFilter("envoy.filters.http.router", &routerv3.Router{SuppressEnvoyHeaders: true})
}

func httpFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: mustAny(config)}}
}

func gatewayService() *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: gatewayCluster},
	}}
}
