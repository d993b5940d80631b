package envoy

import (
	"net/netip"
	"time"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sandlane/sandlane/extproc"
)

// listenerName is how the admin interface names the one listener.
const listenerName = "main"

// Limits of one connection or stream.
const (
	connectionBuffer = 256 << 10 // bytes held for a slow reader, per connection and direction
	h2StreamWindow   = 256 << 10
	h2ConnWindow     = 1 << 20
	h2Streams        = 100
	maxHeaders       = 200 // of a request
	requestHeadersKB = 66  // 64 KB, and what comes with them
	drainTime        = 5 * time.Second
	// delayedClose is how long a connection whose answer broke off, or came before
	// the request was through, stays open. A client of a sandbox that was killed
	// learns of it this much later; one with a longer way to us may miss an early
	// answer.
	delayedClose = 500 * time.Millisecond
)

// removedHeaders never reach a sandbox, also when Envoy set them. Envoy itself adds
// the external address; the key is for the gateway alone, since sandbox code
// must never see one.
var removedHeaders = []string{
	extproc.HeaderAPIKey,
	"x-envoy-original-dst-host",
	"x-envoy-external-address",
	"x-envoy-internal",
	"x-envoy-expected-rq-timeout-ms",
	"x-envoy-attempt-count",
	"x-envoy-original-path",
}

func mainListener(o *Options) *listenerv3.Listener {
	chain := &listenerv3.FilterChain{Filters: []*listenerv3.Filter{
		networkFilter("envoy.filters.network.http_connection_manager", connectionManager(o)),
	}}
	// A connection that says nothing never gets as far as the connection manager,
	// whose timers begin with the first byte: this filter waits for it.
	inspector := listenerFilter("envoy.filters.listener.http_inspector", &httpinspectorv3.HttpInspector{})
	if o.CertFile != "" {
		chain.TransportSocket = downstreamTLS(o)
		chain.TransportSocketConnectTimeout = durationpb.New(o.HeadersTimeout)
		inspector = listenerFilter("envoy.filters.listener.tls_inspector", &tlsinspectorv3.TlsInspector{})
	}
	return &listenerv3.Listener{
		Name:                          listenerName,
		StatPrefix:                    listenerName,
		Address:                       socketAddress(netip.AddrPortFrom(netip.MustParseAddr(o.ListenAddress), uint16(o.Port))),
		ListenerFilters:               []*listenerv3.ListenerFilter{inspector},
		ListenerFiltersTimeout:        durationpb.New(o.HeadersTimeout),
		FilterChains:                  []*listenerv3.FilterChain{chain},
		PerConnectionBufferLimitBytes: u32(connectionBuffer),
		// A client that vanished must not keep a sandbox in use for long.
		TcpKeepalive: &corev3.TcpKeepalive{KeepaliveProbes: u32(3), KeepaliveTime: u32(60), KeepaliveInterval: u32(15)},
	}
}

func networkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: mustAny(config)}}
}

func listenerFilter(name string, config proto.Message) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: mustAny(config)}}
}

func socketAddress(at netip.AddrPort) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       at.Addr().String(),
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(at.Port())},
		Ipv4Compat:    at.Addr() == netip.IPv6Unspecified(),
	}}}
}

func connectionManager(o *Options) *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix: "main",
		CodecType:  hcmv3.HttpConnectionManager_AUTO,

		// Every client is at the edge: none is internal, whatever its address.
		UseRemoteAddress:              wrapperspb.Bool(true),
		XffNumTrustedHops:             uint32(o.TrustedHops),
		InternalAddressConfig:         &hcmv3.HttpConnectionManager_InternalAddressConfig{},
		EarlyHeaderMutationExtensions: earlyMutations(o),

		// The sandbox's own headers pass as they are.
		ServerHeaderTransformation: hcmv3.HttpConnectionManager_PASS_THROUGH,
		GenerateRequestId:          wrapperspb.Bool(false),
		PreserveExternalRequestId:  true,

		// Paths pass as they are; what judges one judges its other readings too.
		NormalizePath:                wrapperspb.Bool(false),
		PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_KEEP_UNCHANGED,

		StreamIdleTimeout:     durationpb.New(o.StreamIdleTimeout),
		RequestTimeout:        zeroDuration,
		MaxRequestHeadersKb:   u32(requestHeadersKB),
		RequestHeadersTimeout: durationpb.New(o.HeadersTimeout),
		DrainTimeout:          durationpb.New(drainTime),
		DelayedCloseTimeout:   durationpb.New(delayedClose),
		UpgradeConfigs:        upgrades(),
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			IdleTimeout:                  durationpb.New(o.ConnectionIdleTimeout),
			MaxHeadersCount:              u32(maxHeaders),
			HeadersWithUnderscoresAction: corev3.HttpProtocolOptions_ALLOW,
		},
		HttpProtocolOptions: &corev3.Http1ProtocolOptions{
			EnableTrailers:       true,
			AcceptHttp_10:        true,
			AllowCustomMethods:   true,
			IgnoreHttp_11Upgrade: otherUpgrades(),
		},
		Http2ProtocolOptions: http2Limits(),

		AccessLog:        accessLogs(),
		LocalReplyConfig: localReplies(),
		HttpFilters:      httpFilters(o),
		RouteSpecifier:   &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes(o)},
	}
}

func httpFilters(o *Options) []*hcmv3.HttpFilter {
	filters := append(routingFilters(o), badStatusFilter(), routerFilter())
	if o.ClientRate > 0 {
		filters = append([]*hcmv3.HttpFilter{clientRateFilter(o.ClientRate)}, filters...)
	}
	return filters
}

// dropInternalHeaders removes what a client could steer Envoy with, before any
// filter, and so ExtProc, sees the request.
func dropInternalHeaders() *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{
		Name: "envoy.http.early_header_mutation.header_mutation",
		TypedConfig: mustAny(&earlyv3.HeaderMutation{Mutations: []*mutationv3.HeaderMutation{{
			Action: &mutationv3.HeaderMutation_RemoveOnMatch_{RemoveOnMatch: &mutationv3.HeaderMutation_RemoveOnMatch{
				KeyMatcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "x-envoy-"}},
			}},
		}}}),
	}
}

// http2Limits states the limits that keep one connection from flooding Envoy.
func http2Limits() *corev3.Http2ProtocolOptions {
	return &corev3.Http2ProtocolOptions{
		MaxConcurrentStreams:                         u32(h2Streams),
		InitialStreamWindowSize:                      u32(h2StreamWindow),
		InitialConnectionWindowSize:                  u32(h2ConnWindow),
		MaxOutboundFrames:                            u32(10_000),
		MaxOutboundControlFrames:                     u32(1_000),
		MaxConsecutiveInboundFramesWithEmptyPayload:  u32(1),
		MaxInboundPriorityFramesPerStream:            u32(100),
		MaxInboundWindowUpdateFramesPerDataFrameSent: u32(10),
		ConnectionKeepalive: &corev3.KeepaliveSettings{
			Interval: durationpb.New(30 * time.Second),
			Timeout:  durationpb.New(15 * time.Second),
		},
	}
}
