package index

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routing"
)

// readerFunc is a client.Reader that only gets.
type readerFunc func(ctx context.Context, obj client.Object) error

func (f readerFunc) Get(ctx context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	return f(ctx, obj)
}

func (f readerFunc) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("unexpected list")
}

var nobody = readerFunc(func(context.Context, client.Object) error {
	return apierrors.NewNotFound(schema.GroupResource{}, "x")
})

func TestLiveIsLimited(t *testing.T) {
	l := NewLive(LiveOptions{Reader: nobody, PerSecond: 8, PerKey: 2})
	for i := range 8 {
		if a, err := l.Resolve(t.Context(), "s"); err != nil || a.State != routing.Unknown {
			t.Fatalf("read %d: %v, %v", i, a.State, err)
		}
	}
	if _, err := l.Resolve(t.Context(), "s"); !errors.Is(err, routing.ErrLimited) {
		t.Errorf("beyond the bucket: %v", err)
	}
	for _, key := range []string{"a", "b"} {
		for range 2 {
			if _, err := l.ResolveFor(t.Context(), key, "s"); err != nil {
				t.Errorf("the share of key %s is used up by others: %v", key, err)
			}
		}
		if _, err := l.ResolveFor(t.Context(), key, "s"); !errors.Is(err, routing.ErrLimited) {
			t.Errorf("beyond the share of key %s: %v", key, err)
		}
		if _, err := l.Sandbox(t.Context(), key, "s"); !errors.Is(err, routing.ErrLimited) {
			t.Errorf("a read of the object, beyond the share of key %s: %v", key, err)
		}
	}
	if _, err := l.SandboxToEnd(t.Context(), "s"); err != nil {
		t.Errorf("to end a sandbox: %v", err)
	}
	reg := prometheus.NewRegistry()
	must(t, l.RegisterMetrics(reg))
	must(t, New(Options{}).RegisterMetrics(reg))
	families, err := reg.Gather()
	must(t, err)
	if len(families) != 6 { // live reads, events, lists, three gauges
		t.Errorf("%d metric families", len(families))
	}
}

// A live read sees that a pod is over, however late its event is.
func TestLiveSeesThatAPodIsOver(t *testing.T) {
	phase := corev1.PodRunning
	l := NewLive(LiveOptions{Reader: readerFunc(func(_ context.Context, obj client.Object) error {
		switch o := obj.(type) {
		case *corev1.Pod:
			p := claimedPod("p", "s", "c", "10.0.0.1", 7)
			p.Status.Phase = phase
			p.DeepCopyInto(o)
		case *v1alpha1.Sandbox:
			boundSandbox("s", "c", "p").DeepCopyInto(o)
		}
		return nil
	})})
	for _, tc := range []struct {
		phase corev1.PodPhase
		want  routing.State
	}{{corev1.PodRunning, routing.Running}, {corev1.PodFailed, routing.Starting}, {corev1.PodSucceeded, routing.Starting}} {
		phase = tc.phase
		if a, err := l.Resolve(t.Context(), "s"); err != nil || a.State != tc.want || (a.Route != nil) != (tc.want == routing.Running) {
			t.Errorf("%s: %+v, %v", tc.phase, a, err)
		}
	}
}

func TestLiveErrors(t *testing.T) {
	away := errors.New("connection refused")
	podAway := readerFunc(func(_ context.Context, obj client.Object) error {
		if _, ok := obj.(*corev1.Pod); ok {
			return away
		}
		boundSandbox("s", "c", "p").DeepCopyInto(obj.(*v1alpha1.Sandbox))
		return nil
	})
	podGone := readerFunc(func(ctx context.Context, obj client.Object) error {
		if err := podAway(ctx, obj); err != nil {
			return nobody(ctx, obj)
		}
		return nil
	})
	slow := readerFunc(func(ctx context.Context, _ client.Object) error {
		<-ctx.Done()
		return ctx.Err()
	})
	for name, tc := range map[string]struct {
		reader client.Reader
		state  routing.State
		err    error
	}{
		"API server away":            {readerFunc(func(context.Context, client.Object) error { return away }), routing.Unknown, away},
		"away for the pod":           {podAway, routing.Unknown, away},
		"pod gone":                   {podGone, routing.Starting, nil},
		"API server does not answer": {slow, routing.Unknown, routing.ErrUnavailable},
	} {
		l := NewLive(LiveOptions{Reader: tc.reader, Timeout: 10 * time.Millisecond})
		if a, err := l.Resolve(t.Context(), "s"); !errors.Is(err, tc.err) || a.State != tc.state || a.Route != nil {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}
