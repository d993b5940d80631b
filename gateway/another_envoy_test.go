package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/kubetest"
)

// An Envoy that is started once the gateway's own has quit, as a kubelet starts a sidecar
// again, gets no route from the gateway that stops, nor from its table. While it is there
// the lease stays, so that no controller takes its sandboxes for idle.
func TestAnotherEnvoyAtTheStop(t *testing.T) {
	w := newWorld(t)
	d, dir := testDrain(t, nil, time.Minute)
	startAdmin(t, dir)
	o := Options{Config: kubetest.Config(t), Name: "one", RunDir: dir, SystemNamespace: w.ns, Log: d.log, DrainGrace: time.Second}
	o.Complete()
	g, err := assemble(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- g.run(ctx) }()
	kubetest.Eventually(t, "the gateway to serve", func() error {
		if !g.ready() {
			return errors.New("not ready")
		}
		return nil
	})
	id := newID()
	route := routecache.Route{SandboxID: id, ClaimID: "c", PodUID: "u", Pool: routecache.PoolOf(w.ns, "base"),
		Addr: netip.MustParseAddr("198.18.0.5"), PodRV: 1 << 60, Use: g.usage.ClaimUse(id, "c")}
	if !g.cache.Put(g.cache.Begin(id), &route) {
		t.Fatal("the route was refused")
	}
	before, late := envoyRequest(t, o, id), envoyRequest(t, o, id)
	if status := before(); status != 0 {
		t.Fatalf("a request of the gateway's own Envoy got %d, not a route", status)
	}

	cancel()
	kubetest.Eventually(t, "the stop to go on without its Envoy", func() error {
		c, err := net.Dial("unix", o.path(APISocket))
		if err == nil {
			_ = c.Close()
			return errors.New("the REST API listens")
		}
		return nil
	})
	another := startAdmin(t, dir)
	if left := g.member.Remaining(); left != 0 {
		t.Errorf("the table may be trusted for %v more", left)
	}
	if status := late(); status != 503 {
		t.Errorf("a request of another Envoy got status %d, want 503", status)
	}
	if err := <-done; err != nil {
		t.Errorf("the gateway ended with %v", err)
	}
	another.want(t)
	var lease coordinationv1.Lease
	if err := w.c.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "one"}, &lease); err != nil || *lease.Spec.HolderIdentity != g.member.Holder() {
		t.Errorf("the lease beside another Envoy: %v, %v", err, lease.Spec)
	}
}

// envoyRequest opens a stream of ExtProc as Envoy does for a request. The function that
// it returns sends the request, and returns the status of the answer; 0 is a route.
func envoyRequest(t *testing.T, o Options, id string) (send func() int) {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Clean(o.path(ExtProcSocket)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return func() int {
		t.Helper()
		header := func(k, v string) *corev3.HeaderValue { return &corev3.HeaderValue{Key: k, RawValue: []byte(v)} }
		headers := &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			header(":method", "GET"), header(":authority", "localhost"), header(":path", "/sandboxes/"+id+"/8000/"),
		}}
		err := stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
			RequestHeaders: &extprocv3.HttpHeaders{Headers: headers},
		}})
		if err != nil {
			t.Fatal(err)
		}
		for {
			answer, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if refused := answer.GetImmediateResponse(); refused != nil {
				return int(refused.GetStatus().GetCode())
			}
			if answer.GetResponse() != nil {
				return 0
			}
		}
	}
}
