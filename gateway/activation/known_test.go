package activation

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/bubble"
)

// known is what the gateway knows of a sandbox, and the answer of its pod.
type known struct {
	routing.Answer
	Ready func(context.Context) error
}

// An activation of a sandbox whose pod the gateway knows makes no call to the API server,
// unless the sandbox belongs to another tenant, the pod refuses, or the cache does not admit
// the route.
func TestActivationByWhatIsKnown(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	for _, tc := range []struct {
		name   string
		change func(*known, *activation)
		want   error // nil: the route is cached
		tries  int
		reads  bool

		resumes types.UID // a sandbox that hibernates, whatever the watches show
	}{
		{"ready", func(*known, *activation) {}, nil, 1, false, ""},
		{"of another pool", func(k *known, _ *activation) { k.Pool = "other" }, errGone, 0, true, ""},
		{"of another team", func(k *known, _ *activation) { k.Team = "other" }, errGone, 0, true, ""},
		{"a fence is newer", func(_ *known, f *activation) {
			if err := f.a.o.Cache.Fence(context.Background(), []routecache.Fence{{Addr: addr, RV: 11}}); err != nil {
				t.Error(err)
			}
		}, errGone, 0, true, ""},
		{"refused", func(k *known, _ *activation) {
			try := k.Ready
			k.Ready = func(ctx context.Context) error { return EndSandbox.With(errors.Join(errors.New("refused"), try(ctx))) }
		}, errGone, 1, true, ""},
		{"slow", func(k *known, _ *activation) {
			try, failures := k.Ready, 3
			k.Ready = func(ctx context.Context) error {
				err := try(ctx)
				if failures--; failures >= 0 {
					err = errors.New("connection refused")
				}
				return err
			}
		}, nil, 4, false, ""},
		{"deaf", func(k *known, _ *activation) {
			k.Ready = func(context.Context) error { return errors.New("connection refused") }
		}, ErrNotReady, 0, false, ""},
		{"hibernates by a live read", func(*known, *activation) {}, errGone, 0, true, "u"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				api := &refusing{read: func(client.Object) error { return apierrors.NewNotFound(sandboxes, "s") }}
				f := activationWith(api, 5*time.Second)
				defer f.cancel()
				f.New = false
				tries := 0
				k := &known{
					Answer: routing.Answer{
						State: routing.Running, Namespace: "ns", Pool: "pool",
						Route: &routecache.Route{SandboxID: "s", ClaimID: "c", PodUID: "u", Addr: addr, PodRV: 10},
					},
					Ready: func(context.Context) error { tries++; return nil },
				}
				tc.change(k, f)
				f.a.o.Known = func(string) routing.Answer { return k.Answer }
				f.a.o.ReadyKnown = func(ctx context.Context, _ string, _ routing.Answer) error { return k.Ready(ctx) }
				f.Resume.UID = tc.resumes
				err := f.activate()
				cached := f.a.o.Cache.Get("s") != nil
				if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) || cached != (tc.want == nil) {
					t.Errorf("ended with %v, cached: %v; want %v", err, cached, tc.want)
				}
				if tries != tc.tries || (api.reads > 0) != tc.reads {
					t.Errorf("%d tries and %d reads, want %d tries, reads: %v", tries, api.reads, tc.tries, tc.reads)
				}
			})
		})
	}
}
