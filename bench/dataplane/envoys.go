package dataplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/test/ports"
)

const extProcFilter = "envoy.filters.http.ext_proc"

// side is one Envoy with the server that answers it.
type side struct {
	name    string
	address string // that clients connect to
	envoy   *suite.Process
	// server answers Envoy; nil for plain Envoy.
	server *suite.Process
}

// stop ends both.
func (s *side) stop() {
	s.envoy.Stop()
	s.server.Stop()
}

// startEnvoy runs Envoy with Sandlane's own configuration, which change, if it is not nil,
// modifies. The caller sets o.RunDir, the folder also of Envoy's files.
func startEnvoy(ctx context.Context, e *suite.Env, name string, o envoy.Options, workers int, change func(*bootstrapv3.Bootstrap) error) (*suite.Process, string, error) {
	var err error
	if o.Port, err = ports.Free(); err != nil {
		return nil, "", err
	}
	o.NodeID = name
	bootstrap, err := envoy.Bootstrap(o)
	if err != nil {
		return nil, "", err
	}
	if change != nil {
		if err := change(bootstrap); err != nil {
			return nil, "", err
		}
	}
	config, err := envoy.JSON(bootstrap)
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(o.RunDir, name+".json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, "", fmt.Errorf("write Envoy's configuration: %w", err)
	}
	admin := envoy.Admin{Socket: filepath.Join(o.RunDir, envoy.AdminSocketName)}
	p, err := e.Start(ctx, name, nil, admin.Ready, e.Envoy, envoy.Args(file, workers)...)
	return p, fmt.Sprintf("127.0.0.1:%d", o.Port), err
}

// plain turns a configuration into that of a plain proxy: without ExtProc and what asks for
// its answer, and with one fixed address in the sandboxes' cluster. It changes nothing else.
func plain(upstream int) func(*bootstrapv3.Bootstrap) error {
	return func(b *bootstrapv3.Bootstrap) error {
		if err := withoutExtProc(b); err != nil {
			return err
		}
		for _, c := range b.GetStaticResources().GetClusters() {
			if c.GetName() == envoy.SandboxCluster {
				fix(c, upstream)
			}
		}
		return nil
	}
}

// byHost turns a configuration into that of a proxy to the address in a request's host:
// without ExtProc, and the sandboxes' cluster reads the host. It changes nothing else.
func byHost(b *bootstrapv3.Bootstrap) error {
	if err := withoutExtProc(b); err != nil {
		return err
	}
	for _, c := range b.GetStaticResources().GetClusters() {
		if c.GetName() == envoy.SandboxCluster {
			c.LbConfig = &clusterv3.Cluster_OriginalDstLbConfig_{OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{
				UseHttpHeader: true, HttpHeaderName: ":authority",
			}}
		}
	}
	return nil
}

func withoutExtProc(b *bootstrapv3.Bootstrap) error {
	filter := b.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0]
	manager := &hcmv3.HttpConnectionManager{}
	if err := filter.GetTypedConfig().UnmarshalTo(manager); err != nil {
		return fmt.Errorf("read Envoy's connection manager: %w", err)
	}
	var kept []*hcmv3.HttpFilter
	for _, f := range manager.GetHttpFilters() {
		if f.GetName() != extProcFilter {
			kept = append(kept, f)
		}
	}
	manager.HttpFilters = kept
	for _, h := range manager.GetRouteConfig().GetVirtualHosts() {
		for _, r := range h.GetRoutes() {
			r.TypedPerFilterConfig = nil // it configures the filter that was removed
		}
	}
	if err := filter.GetTypedConfig().MarshalFrom(manager); err != nil {
		return fmt.Errorf("write Envoy's connection manager: %w", err)
	}
	for _, c := range b.GetStaticResources().GetClusters() {
		if c.GetName() == envoy.SandboxCluster {
			if err := withoutAge(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// withoutAge takes the filters away that refuse a request without a young answer of ExtProc.
func withoutAge(c *clusterv3.Cluster) error {
	for _, packed := range c.GetTypedExtensionProtocolOptions() {
		options := &httpv3.HttpProtocolOptions{}
		if err := packed.UnmarshalTo(options); err != nil {
			return fmt.Errorf("read the options of Envoy's cluster: %w", err)
		}
		options.HttpFilters = nil
		if err := packed.MarshalFrom(options); err != nil {
			return fmt.Errorf("write the options of Envoy's cluster: %w", err)
		}
	}
	return nil
}

func fix(c *clusterv3.Cluster, port int) {
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	c.LbPolicy, c.LbConfig = clusterv3.Cluster_ROUND_ROBIN, nil
	address := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: suite.FirstAddress, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
	c.LoadAssignment = &endpointv3.ClusterLoadAssignment{
		ClusterName: c.GetName(),
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
		}}}},
	}
}
