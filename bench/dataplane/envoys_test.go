package dataplane

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sandlane/sandlane/envoy"
)

// Plain Envoy is Sandlane's Envoy without ExtProc: nothing else changes, or the
// comparison would not be one.
func TestPlainDiffersByExtProcAlone(t *testing.T) {
	with, err := envoy.Bootstrap(envoy.Options{RunDir: "/run/x"})
	if err != nil {
		t.Fatal(err)
	}
	without := proto.CloneOf(with)
	if err := plain(8000)(without); err != nil {
		t.Fatal(err)
	}
	if err := without.ValidateAll(); err != nil {
		t.Error(err)
	}
	text, err := envoy.JSON(without)
	if err != nil {
		t.Fatal(err)
	}
	before, err := envoy.JSON(with)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), extProcFilter) || !strings.Contains(string(before), extProcFilter) {
		t.Error("ExtProc's filter is in plain Envoy's configuration, or missing in Sandlane's")
	}
	for i, c := range without.GetStaticResources().GetClusters() {
		old := with.GetStaticResources().GetClusters()[i]
		if c.GetName() != envoy.SandboxCluster {
			if !proto.Equal(c, old) {
				t.Errorf("cluster %s differs", c.GetName())
			}
			continue
		}
		if c.GetType() != clusterv3.Cluster_STATIC {
			t.Errorf("the sandboxes' cluster is %v", c.GetType())
		}
		if err := withoutAge(old); err != nil {
			t.Fatal(err)
		}
		c.ClusterDiscoveryType, c.LbPolicy, c.LbConfig, c.LoadAssignment = old.ClusterDiscoveryType, old.LbPolicy, old.LbConfig, nil
		if !proto.Equal(c, old) {
			t.Error("the sandboxes' cluster differs in more than its address")
		}
	}
}

// The floor of a fleet differs from Sandlane's Envoy only in where the sandboxes' cluster
// reads the address.
func TestByHostDiffersByTheAddress(t *testing.T) {
	b, err := envoy.Bootstrap(envoy.Options{RunDir: "/run/x"})
	if err != nil {
		t.Fatal(err)
	}
	old := proto.CloneOf(b)
	if err := byHost(b); err != nil {
		t.Fatal(err)
	}
	if err := b.ValidateAll(); err != nil {
		t.Error(err)
	}
	text, err := envoy.JSON(b)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), extProcFilter) {
		t.Error("ExtProc's filter is in the configuration")
	}
	for i, c := range b.GetStaticResources().GetClusters() {
		before := old.GetStaticResources().GetClusters()[i]
		if c.GetName() == envoy.SandboxCluster {
			if c.GetOriginalDstLbConfig().GetHttpHeaderName() != ":authority" {
				t.Error("the cluster does not read the host")
			}
			c.LbConfig = before.LbConfig
			if err := withoutAge(before); err != nil {
				t.Fatal(err)
			}
		}
		if !proto.Equal(c, before) {
			t.Errorf("cluster %s differs in more than that", c.GetName())
		}
	}
}
