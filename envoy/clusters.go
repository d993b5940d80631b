package envoy

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sandlane/sandlane/extproc"
)

const (
	gatewayCluster = "extproc"
	apiCluster     = "api"
	httpOptionsKey = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	// upstreamIdle is shorter than the 5 s after which common servers close a
	// kept-alive connection: a request must not meet that close.
	upstreamIdle = 4 * time.Second
	// hostRest is how long Envoy keeps the address of a sandbox that gets no request,
	// to twice as long. To add one copies the list of all, so what rests for less must
	// not be removed and added again; to keep one costs memory, and time of each look
	// at /clusters. See docs/design/decisions/many-sandboxes.md.
	hostRest = time.Minute
	// framesPerStream is how many frames to the gateway may wait to be written for
	// each stream that may be open: a request makes headers, data, an end and a
	// reset, and streams that have ended just before may still have some.
	framesPerStream = 8
	// What a sandbox's answer may have for headers.
	maxAnswerHeaders = 1000
	answerHeadersKB  = 258 // 256 KB, and what comes with them
	// unlimited is for limits that must never be what holds a request back.
	unlimited = 1_000_000
)

// sandboxCluster reaches the pods. The address comes from ExtProc's metadata, or from
// the filter state that the module of the fast path sets, and from nowhere else: no header
// is read, without either there is no host.
func sandboxCluster(o *Options) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 SandboxCluster,
		ConnectTimeout:       durationpb.New(ConnectTimeout),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST},
		LbPolicy:             clusterv3.Cluster_CLUSTER_PROVIDED,
		LbConfig: &clusterv3.Cluster_OriginalDstLbConfig_{OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{
			MetadataKey: &metadatav3.MetadataKey{Key: extproc.MetadataNamespace, Path: []*metadatav3.MetadataKey_PathSegment{
				{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: extproc.MetadataDestination}},
			}},
		}},
		CleanupInterval:               durationpb.New(hostRest),
		PerConnectionBufferLimitBytes: u32(connectionBuffer),
		TypedExtensionProtocolOptions: httpOptions(toPods(o)),
		// Connections are not limited, on purpose: docs/design/decisions/envoy-settings.md.
		CircuitBreakers:           breakers(unlimited, SandboxRequests(o.MaxStreams)),
		UpstreamConnectionOptions: &clusterv3.UpstreamConnectionOptions{TcpKeepalive: upstreamKeepalive()},
		UpstreamBindConfig:        upstreamSockets(o),
	}
}

// extProcCluster is the gateway process, over a unix socket. A connection to one is
// made or refused at once. Its timeout counts only how long a busy Envoy takes to
// notice, and ends all requests that wait for the connection: it must not be shorter
// than what each of them may wait for its answer.
func extProcCluster(o *Options) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 gatewayCluster,
		ConnectTimeout:       durationpb.New(o.MessageTimeout),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		TypedExtensionProtocolOptions: httpOptions(&httpv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
						MaxConcurrentStreams: u32(2 * o.MaxStreams),
						// Envoy closes the connection, and with it every parked request of a
						// worker, when more frames than this wait to be written: resets, of
						// which each answered request makes one, and all kinds together.
						MaxOutboundControlFrames: u32(framesPerStream * o.MaxStreams),
						MaxOutboundFrames:        u32(framesPerStream * o.MaxStreams),
					},
				},
			}},
		}),
		// Every open request may be parked here, and each worker has a stream
		// for the access log.
		CircuitBreakers: breakers(unlimited, 2*o.MaxStreams),
		LoadAssignment:  at(gatewayCluster, o.ExtProcSocket),
	}
}

// restCluster is the REST API of the gateway process, over a unix socket; see
// extProcCluster for its timeout.
func restCluster(o *Options) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                          apiCluster,
		ConnectTimeout:                durationpb.New(o.MessageTimeout),
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		PerConnectionBufferLimitBytes: u32(connectionBuffer),
		TypedExtensionProtocolOptions: httpOptions(http1()),
		CircuitBreakers:               withHealth(breakers(unlimited, o.MaxStreams)),
		LoadAssignment:                at(apiCluster, o.APISocket),
	}
}

// withHealth lets requests for /health through, which have the high priority, where
// all others are at their limit.
func withHealth(c *clusterv3.CircuitBreakers) *clusterv3.CircuitBreakers {
	high := breakers(unlimited, 2*healthConnections).GetThresholds()[0]
	high.Priority = corev3.RoutingPriority_HIGH
	c.Thresholds = append(c.Thresholds, high)
	return c
}

// http1 speaks HTTP/1.1 upstream.
func http1() *httpv3.HttpProtocolOptions {
	return &httpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
				HttpProtocolOptions: &corev3.Http1ProtocolOptions{EnableTrailers: true},
			},
		}},
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			IdleTimeout:          durationpb.New(upstreamIdle),
			MaxHeadersCount:      u32(maxAnswerHeaders),
			MaxResponseHeadersKb: u32(answerHeadersKB),
		},
	}
}

// toPods speaks HTTP/1.1 to pods, if the answer that names one is young enough.
func toPods(o *Options) *httpv3.HttpProtocolOptions {
	options := http1()
	options.HttpFilters = ageFilters(o)
	return options
}

// at is a cluster's one endpoint, a unix socket.
func at(cluster, socket string) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: cluster,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: pipe(socket)}},
		}}}},
	}
}

func httpOptions(m proto.Message) map[string]*anypb.Any {
	return map[string]*anypb.Any{httpOptionsKey: mustAny(m)}
}

// breakers states every limit: each one left out is 1024, retries 3.
func breakers(connections, requests int) *clusterv3.CircuitBreakers {
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     u32(connections),
		MaxPendingRequests: u32(requests),
		MaxRequests:        u32(requests),
		MaxRetries:         wrapperspb.UInt32(uint32(requests)),
	}}}
}
