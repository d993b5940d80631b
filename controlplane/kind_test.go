package controlplane

import (
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/sandlane/sandlane/controlplane/controlplanepb"
	"github.com/sandlane/sandlane/test/bubble"
)

// What is asked of gateways does not wait for an egress process, nor the other way round:
// each kind's directory knows its own leases, also one that is written back.
func TestKindsDoNotKnowEachOther(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		egress, err := NewDirectory(DirectoryOptions{Leases: api, Kind: Egress})
		if err != nil {
			t.Fatal(err)
		}
		gateways := newDirectory(t, api)
		for name, kind := range map[string]Kind{"gw": Gateways, "out": Egress} {
			m := newMember(t, api, func(o *MembershipOptions) {
				o.Name, o.Kind, o.LeaseDuration, o.RenewEvery = name, kind, 15*time.Second, 5*time.Second
			})
			m.start(t)
			defer m.stop(t)
		}
		wantNames(t, gateways, "gw=a/1", "gateways")
		wantNames(t, egress, "out=a/1", "egress")
		api.drop("out")
		wantNames(t, gateways, "gw=a/1", "gateways, an egress process's lease deleted")
		wantNames(t, egress, "out=revoked:a/1", "egress, its lease deleted")
		wantNames(t, gateways, "gw=a/1", "gateways, an egress process's lease written back")
		next, err := NewDirectory(DirectoryOptions{Leases: api, Kind: Egress})
		if err != nil {
			t.Fatal(err)
		}
		wantNames(t, next, "out=revoked:a/1", "the next controller")
	})
}

// A process that is no gateway answers calls for fences, and says of all others that it has
// no answer.
func TestServerForFencesAlone(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control.sock")
	l, err := ListenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	fences := &fakeFencer{}
	server, err := NewServer(ServerOptions{Listener: l, Member: &fixedMember{}, Fencer: fences})
	if err != nil {
		t.Fatal(err)
	}
	defer startReal(t, server)()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stub := controlplanepb.NewGatewayClient(conn)
	if _, err := stub.Fence(t.Context(), &controlplanepb.FenceRequest{Fences: []*controlplanepb.Fence{{Address: addr1.AsSlice(), ResourceVersion: 3}}}); err != nil || !fences.acknowledged(3) {
		t.Errorf("a fence: %v", err)
	}
	for what, call := range map[string]func() error{
		"use":    func() error { _, err := stub.LastActive(t.Context(), &controlplanepb.LastActiveRequest{}); return err },
		"demand": func() error { _, err := stub.PoolDemand(t.Context(), &controlplanepb.PoolDemandRequest{}); return err },
		"enforcePauses": func() error {
			_, err := stub.EnforcePause(t.Context(), &controlplanepb.EnforcePauseRequest{})
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := NewServer(ServerOptions{Listener: l, Member: &fixedMember{}, Fencer: fences, Activity: &fakeActivity{}}); err == nil {
		t.Error("a gateway without its sources was accepted")
	}
}
