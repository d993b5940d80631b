package envoy

import (
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	heapv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/fixed_heap/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

const heapMonitor = "envoy.resource_monitors.fixed_heap"

// overloadManager bounds client connections and memory: Envoy gives memory back
// first, then refuses new requests, and never ends streams that are open.
func overloadManager(o *Options) *overloadv3.OverloadManager {
	return &overloadv3.OverloadManager{
		RefreshInterval: durationpb.New(250 * time.Millisecond),
		ResourceMonitors: []*overloadv3.ResourceMonitor{
			monitor("envoy.resource_monitors.global_downstream_max_connections",
				&connectionsv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: int64(o.MaxStreams)}),
			monitor(heapMonitor, &heapv3.FixedHeapConfig{MaxHeapSizeBytes: uint64(o.MaxHeapBytes)}),
		},
		Actions: []*overloadv3.OverloadAction{
			above(0.92, "envoy.overload_actions.shrink_heap"),
			above(0.98, "envoy.overload_actions.stop_accepting_requests"),
		},
	}
}

func monitor(name string, config proto.Message) *overloadv3.ResourceMonitor {
	return &overloadv3.ResourceMonitor{
		Name:       name,
		ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: mustAny(config)},
	}
}

func above(share float64, action string) *overloadv3.OverloadAction {
	return &overloadv3.OverloadAction{Name: action, Triggers: []*overloadv3.Trigger{{
		Name:         heapMonitor,
		TriggerOneof: &overloadv3.Trigger_Threshold{Threshold: &overloadv3.ThresholdTrigger{Value: share}},
	}}}
}

// runtimeLayers bounds what one connection may do in a turn of the event loop,
// and when a client that resets its streams at once is cut off.
func runtimeLayers() *bootstrapv3.LayeredRuntime {
	values, err := structpb.NewStruct(map[string]any{
		"http.max_requests_per_io_cycle":                       1,
		"overload.premature_reset_total_stream_count":          500,
		"overload.premature_reset_min_stream_lifetime_seconds": 1,
	})
	if err != nil {
		panic(err) // the values are literals of this file
	}
	return &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
		Name:           "static",
		LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: values},
	}}}
}
