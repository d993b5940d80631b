package envoy

import (
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sandlane/sandlane/extproc"
)

const extProcName = "envoy.filters.http.ext_proc"

// extProcFilter asks the gateway once per request, with the headers alone. No
// answer is an error, and the answer cannot change more than the path and two
// headers of an immediate answer.
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
			AllowExpression: &matcherv3.RegexMatcher{Regex: "^(:path|retry-after|content-type)$"},
		},
		RouteCacheAction: extprocv3.ExternalProcessor_RETAIN,
		ForwardRules:     &extprocv3.HeaderForwardingRules{AllowedHeaders: &matcherv3.ListStringMatcher{Patterns: forward}},
	})
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
