package controlplane

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/sandlane/sandlane/controlplane/controlplanepb"
)

type fixedMember struct{ reached atomic.Int32 }

func (*fixedMember) Holder() string { return "a/1" }
func (m *fixedMember) Reached()     { m.reached.Add(1) }

func TestServer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control.sock")
	l, err := ListenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	demand := &fakeDemand{pools: []PoolDemand{{Namespace: "ns", Pool: "p", Waiting: []uint64{7}, Oldest: time.Minute, Created: -5}}}
	member, fences, use := &fixedMember{}, &fakeFencer{}, &fakeActivity{report: ActivityReport{Source: "now", Cursor: 9}}
	server, err := NewServer(ServerOptions{
		Listener: l, Member: member, Fencer: fences, Activity: use, Releaser: &fakeReleaser{}, PauseEnforcer: &fakePauseEnforcer{err: errors.New("the API server is away")}, Demand: demand,
	})
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

	_, err = stub.Fence(t.Context(), &controlplanepb.FenceRequest{Fences: []*controlplanepb.Fence{{Address: []byte{1, 2, 3}}}})
	if status.Code(err) != codes.InvalidArgument || fences.asked() != 0 {
		t.Errorf("a fence of 3 bytes: %v, asked %d times", err, fences.asked())
	}
	mapped := net.ParseIP("198.18.0.7").To16()
	r, err := stub.Fence(t.Context(), &controlplanepb.FenceRequest{Fences: []*controlplanepb.Fence{{Address: mapped, ResourceVersion: 3}}})
	if err != nil || r.GetHolder() != "a/1" || fences.calls[0][0].Addr != addr1 || fences.calls[0][0].RV != 3 {
		t.Errorf("fence: %v, %v, %v", r, err, fences.calls)
	}
	fences.setHang(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := stub.Fence(ctx, &controlplanepb.FenceRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a fence that hangs: %v", err)
	}
	if _, err := stub.EnforcePause(t.Context(), &controlplanepb.EnforcePauseRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a enforcePause that the gateway cannot carry out: %v", err)
	}
	a, err := stub.LastActive(t.Context(), &controlplanepb.LastActiveRequest{Source: "before", Cursor: 4})
	if err != nil || a.GetSource() != "now" || a.GetCursor() != 9 || a.GetKnown() {
		t.Errorf("last active: %v, %v", a, err)
	}
	if c := use.cursors; len(c) != 2 || c[1] != 0 {
		t.Errorf("cursors %v: a cursor of another source must count as 0", c)
	}
	d, err := stub.PoolDemand(t.Context(), &controlplanepb.PoolDemandRequest{})
	if err != nil || d.GetHolder() != "a/1" || len(d.GetPools()) != 1 {
		t.Fatalf("demand: %v, %v", d, err)
	}
	if p := d.GetPools()[0]; p.GetNamespace() != "ns" || p.GetPool() != "p" || !slices.Equal(p.GetWaiting(), []uint64{7}) ||
		p.GetOldestNanos() != int64(time.Minute) || p.GetCreatedNanos() != -1 {
		t.Errorf("demand: %v", p)
	}
	if n := member.reached.Load(); n != 6 {
		t.Errorf("reached %d times, want once a call", n)
	}
}

func TestServerReportsAFailedListener(t *testing.T) {
	l, err := ListenUnix(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := NewServer(ServerOptions{
		Listener: l, Member: &fixedMember{}, Fencer: &fakeFencer{}, Activity: &fakeActivity{}, Releaser: &fakeReleaser{}, PauseEnforcer: &fakePauseEnforcer{}, Demand: &fakeDemand{},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := server.Start(t.Context()); err == nil {
		t.Error("Start returned nil though its listener is closed")
	}
	if _, err := NewServer(ServerOptions{Listener: l}); err == nil {
		t.Error("a server without its parts")
	}
}

func TestListenUnixReplacesAndKeepsASuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the successor's socket: %v", err)
	}
	conn.Close()
	second.Close()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("after both closed: %v", err)
	}
	if _, err := ListenUnix(filepath.Join(path, "no", "folder")); err == nil {
		t.Error("listening in a folder that does not exist")
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMembershipMetrics(reg)
	NewControllerMetrics(reg)
	g := newMember(t, newFakeAPI(), func(o *MembershipOptions) { o.Metrics = m })
	held := func() float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "sandlane_controlplane_lease_held" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatal("no lease_held")
		return 0
	}
	if held() != 0 {
		t.Error("held before the start")
	}
	g.grant.Store(&grant{until: now().add(time.Hour)})
	if held() != 1 {
		t.Error("not held")
	}
}
