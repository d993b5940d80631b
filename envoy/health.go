package envoy

import (
	"net/netip"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/connection_limit/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// What a prober needs, and no more: this listener has no part in the limits of the
// other, so it must not be a way around them.
const (
	healthPath        = "/health"
	healthConnections = 100
	healthTimeout     = 5 * time.Second // of a connection without a request, and of an answer
	healthBuffer      = 32 << 10
)

// healthListener answers GET /health as the clients' listener does: through Envoy by
// the gateway, so that an answer says that both are there. Clients that fill the
// other listener do not keep it from answering: its connections do not count among
// theirs, an Envoy short of memory takes its requests, and so does a cluster that
// has as many open as it may. All else is 404. It has no listener filter, since a
// prober that says nothing is cut off by the timers of the connection manager.
func healthListener(o *Options) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:                          "health",
		StatPrefix:                    "health",
		Address:                       socketAddress(netip.MustParseAddrPort(o.HealthAddress)),
		BypassOverloadManager:         true, // of which the limit of connections is a part
		PerConnectionBufferLimitBytes: u32(healthBuffer),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{
			networkFilter("envoy.filters.network.connection_limit", &limitv3.ConnectionLimit{
				StatPrefix: "health", MaxConnections: wrapperspb.UInt64(healthConnections),
			}),
			networkFilter("envoy.filters.network.http_connection_manager", healthManager()),
		}}},
	}
}

func healthManager() *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix:                "health",
		CodecType:                 hcmv3.HttpConnectionManager_HTTP1,
		RequestTimeout:            durationpb.New(healthTimeout),
		RequestHeadersTimeout:     durationpb.New(healthTimeout),
		StreamIdleTimeout:         durationpb.New(2 * healthTimeout),
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(healthTimeout)},
		GenerateRequestId:         wrapperspb.Bool(false),
		LocalReplyConfig:          localReplies(),
		HttpFilters:               []*hcmv3.HttpFilter{routerFilter()},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name: "health",
			VirtualHosts: []*routev3.VirtualHost{{
				Name:    "all",
				Domains: []string{"*"},
				Routes: []*routev3.Route{{
					Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: healthPath}},
					Action: &routev3.Route_Route{Route: &routev3.RouteAction{
						ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: apiCluster},
						Timeout:          durationpb.New(healthTimeout),
						Priority:         corev3.RoutingPriority_HIGH, // with limits of its own, see restCluster
						RetryPolicy:      retryUnsent(),
					}},
				}},
			}},
		}},
	}
}
