package envoy

import (
	"fmt"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"sigs.k8s.io/yaml"
)

// Bootstrap returns the static configuration of an Envoy that asks the gateway
// for every request. It completes and validates a copy of o.
func Bootstrap(o Options) (*bootstrapv3.Bootstrap, error) {
	o.Complete()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("envoy options: %w", err)
	}
	b := &bootstrapv3.Bootstrap{
		Node: &corev3.Node{Id: o.NodeID, Cluster: "sandlane"},
		Admin: &bootstrapv3.Admin{
			Address:               pipe(o.AdminSocket),
			IgnoreGlobalConnLimit: true, // the way to look into a full Envoy
		},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Listeners: listeners(&o),
			Clusters:  []*clusterv3.Cluster{sandboxCluster(&o), extProcCluster(&o), restCluster(&o)},
		},
		OverloadManager: overloadManager(&o),
		LayeredRuntime:  runtimeLayers(),
	}
	if err := b.ValidateAll(); err != nil {
		return nil, fmt.Errorf("envoy configuration: %w", err)
	}
	return b, nil
}

func listeners(o *Options) []*listenerv3.Listener {
	all := []*listenerv3.Listener{mainListener(o)}
	if o.HealthAddress != "" {
		all = append(all, healthListener(o))
	}
	return all
}

// JSON returns the configuration as indented JSON.
func JSON(b *bootstrapv3.Bootstrap) ([]byte, error) {
	out, err := protojson.MarshalOptions{Multiline: true, UseProtoNames: true}.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("render envoy configuration: %w", err)
	}
	return append(out, '\n'), nil
}

// YAML returns the configuration as YAML.
func YAML(b *bootstrapv3.Bootstrap) ([]byte, error) {
	out, err := JSON(b)
	if err != nil {
		return nil, err
	}
	if out, err = yaml.JSONToYAML(out); err != nil {
		return nil, fmt.Errorf("render envoy configuration: %w", err)
	}
	return out, nil
}

func pipe(path string) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
}

// mustAny packs a message that this package built itself, the same bytes each
// time; it cannot fail for generated types.
func mustAny(m proto.Message) *anypb.Any {
	a := new(anypb.Any)
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(err)
	}
	return a
}

func u32(v int) *wrapperspb.UInt32Value { return wrapperspb.UInt32(uint32(v)) }

var zeroDuration = durationpb.New(0)
