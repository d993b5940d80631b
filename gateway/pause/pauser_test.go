package pause

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/bubble"
)

// The state in an index's answer is replaced while the index has not seen this gateway's
// own write, and kept once it has.
func TestCorrect(t *testing.T) {
	p, err := New(nil, routecache.New(10), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.own.Add("paused", ownWrite{order: 5, paused: true})
	p.own.Add("resumed", ownWrite{order: 5})
	for _, c := range []struct {
		claim string
		order int64
		state routing.State
		want  routing.State
	}{
		{"paused", 4, routing.Running, routing.Paused}, {"paused", 5, routing.Paused, routing.Paused}, {"paused", 6, routing.Running, routing.Running},
		{"paused", 4, routing.Ended, routing.Ended}, {"resumed", 4, routing.Paused, routing.MaybeFrozen}, {"resumed", 4, routing.Running, routing.MaybeFrozen},
		{"resumed", 5, routing.Running, routing.Running}, {"other", 4, routing.Running, routing.Running}, {"", 0, routing.NoPod, routing.NoPod},
	} {
		a := p.Correct(routing.Answer{ClaimID: c.claim, PauseOrder: c.order, State: c.state, Route: &routecache.Route{}})
		if a.State != c.want || (a.Route == nil) != (a.State != c.state) {
			t.Errorf("%s at %d, %s: %s, route %v", c.claim, c.order, c.state, a.State, a.Route)
		}
	}
}

// Of two writes the later one counts, whichever answer comes first.
func TestLaterWriteIsRemembered(t *testing.T) {
	p, err := New(nil, routecache.New(10), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []ownWrite{{order: 6, paused: true}, {order: 5}, {order: 5, awake: true}} {
		p.remember("c", w)
	}
	if a := p.Correct(routing.Answer{ClaimID: "c", PauseOrder: 5, State: routing.Running}); a.State != routing.Paused {
		t.Errorf("it is %s", a.State)
	}
}

// This gateway's order to run counts for the resume that it was given for, and for no
// other.
func TestKnowsAwake(t *testing.T) {
	p, err := New(nil, routecache.New(10), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.remember("c", ownWrite{order: 5})
	p.remember("c", ownWrite{order: 5, awake: true})
	for order, want := range map[int64]bool{4: false, 5: true, 6: false} {
		s := &v1alpha1.Sandbox{}
		s.Spec.PauseOrder, s.Spec.PauseMode, s.Spec.Binding = order, v1alpha1.PauseFreeze, &v1alpha1.Binding{ClaimID: "c"}
		if got := p.knowsAwake(s); got != want {
			t.Errorf("at order %d it is awake: %v", order, got)
		}
	}
	p.remember("c", ownWrite{order: 6, paused: true})
	p.remember("c", ownWrite{order: 5, awake: true})
	if a := p.Correct(routing.Answer{ClaimID: "c", PauseOrder: 5, State: routing.Running}); a.State != routing.Paused {
		t.Errorf("paused since: %s", a.State)
	}
	if p.knowsAwake(&v1alpha1.Sandbox{}) {
		t.Error("one without a pod is awake")
	}
}

// stubOrders counts the orders that it is given.
type stubOrders struct {
	Orders
	given int
}

func (o *stubOrders) Unfreeze(context.Context, string, *corev1.Pod, int64) error {
	o.given++
	return nil
}

func (o *stubOrders) Probe(context.Context, string, *corev1.Pod, int64) error {
	o.given++
	return nil
}

// The watch may show this gateway's own write between the look at the pod and the order:
// the order is given all the same, however often that happens, or what was written to be
// resumed would stay frozen.
func TestOrderOutlastsTheWatch(t *testing.T) {
	s, pod := runs()
	cache, reads := routecache.New(10), 0
	api := interceptor.NewClient(fake.NewClientBuilder().WithObjects(pod).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if reads++; reads <= orderTries+1 {
				cache.Invalidate("s")
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	orders := &stubOrders{}
	p, err := New(api, cache, orders, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.order(t.Context(), s, p.orders.Unfreeze); err != nil || orders.given != 1 {
		t.Errorf("%v; %d orders were given", err, orders.given)
	}
}

// A sandbox that does not run is not paused.
func TestPauseOfWhatDoesNotRun(t *testing.T) {
	p, err := New(nil, routecache.New(10), nil, nil) // nothing is read or written
	if err != nil {
		t.Fatal(err)
	}
	bound := &v1alpha1.Binding{ClaimID: "c"}
	for what, spec := range map[string]v1alpha1.SandboxSpec{
		"unbound":        {},
		"paused already": {Binding: bound, Paused: true},
		"not restored":   {Binding: bound, Restore: &v1alpha1.Restore{Checkpoint: "c"}},
	} {
		if err := p.Pause(t.Context(), &v1alpha1.Sandbox{Spec: spec}, v1alpha1.PauseFreeze); !errors.Is(err, ErrNotRunning) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A sandbox whose pod starts, stops or is gone is not paused: its freezer is asked for
// nothing, and nothing is written.
func TestPauseOfAPodThatDoesNotRun(t *testing.T) {
	for what, change := range map[string]func(*corev1.Pod){
		"starts":         func(pod *corev1.Pod) { pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodStarting) },
		"stops":          func(pod *corev1.Pod) { pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodStopping) },
		"has no address": func(pod *corev1.Pod) { delete(pod.Annotations, v1alpha1.AnnotationAddress) },
		"is another's":   func(pod *corev1.Pod) { pod.Annotations[v1alpha1.AnnotationClaim] = "another" },
	} {
		s, pod := runs()
		change(pod)
		reads := 0
		api := interceptor.NewClient(fake.NewClientBuilder().WithObjects(pod).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				reads++
				return c.Get(ctx, key, o, opts...)
			},
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				t.Errorf("%s: it is written", what)
				return nil
			},
		})
		orders := &stubOrders{}
		p, err := New(api, routecache.New(10), orders, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Pause(t.Context(), s, v1alpha1.PauseFreeze); !errors.Is(err, ErrNotRunning) || orders.given != 0 || reads != 1 {
			t.Errorf("%s: %v; %d orders were given, its pod was read %d times", what, err, orders.given, reads)
		}
	}
}

// busyOrders reads the sandbox's files while it is asked to freeze for the first times.
type busyOrders struct {
	stubOrders
	busy, freezes int
}

func (o *busyOrders) Freeze(context.Context, string, *corev1.Pod, int64) error {
	if o.freezes++; o.freezes <= o.busy {
		return sandboxdclient.ErrBusy
	}
	return nil
}

// A snapshot that begins between the probe and the freeze is waited for; one that takes
// longer makes the pause a conflict, which is undone.
func TestPauseMeetsASnapshot(t *testing.T) {
	for busy, want := range map[int]error{10: nil, 1000: ErrNotRunning} {
		bubble.Test(t, func(t *testing.T) {
			s, pod := runs()
			api := withSandbox(t, s, pod)
			o := &busyOrders{busy: busy}
			p, err := New(api, routecache.New(10), o, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = p.Pause(t.Context(), s.DeepCopy(), v1alpha1.PauseFreeze)
			live := &v1alpha1.Sandbox{}
			if readErr := api.Get(t.Context(), client.ObjectKeyFromObject(s), live); readErr != nil {
				t.Fatal(readErr)
			}
			if !errors.Is(err, want) || live.Spec.Paused != (want == nil) {
				t.Errorf("busy %d times: %v; paused %v", busy, err, live.Spec.Paused)
			}
			if want != nil && outcomeOf(err) != "conflict" {
				t.Errorf("it counts as %s", outcomeOf(err))
			}
		})
	}
}

// A wake of a sandbox that hibernates has not failed: an activation goes on with it.
func TestWakeOfAHibernatedSandboxIsNoFailure(t *testing.T) {
	s, _ := runs()
	s.Spec.Binding, s.Spec.Paused, s.Spec.PauseMode = nil, true, v1alpha1.PauseHibernate
	s.Spec.Restore, s.Spec.Timeouts.AutoResume = &v1alpha1.Restore{Checkpoint: "c"}, v1alpha1.AutoResumeAlways
	m := NewMetrics(nil)
	p, err := New(withSandbox(t, s), routecache.New(10), nil, m)
	if err != nil {
		t.Fatal(err)
	}
	left, err := p.Wake(t.Context(), "s", s.UID)
	if err != nil || left.UID != s.UID || left.Lifetime != v1alpha1.AutoLifetime(s) {
		t.Errorf("%+v, %v", left, err)
	}
	var counted dto.Metric
	if err := m.seconds.WithLabelValues(opWake, string(v1alpha1.PauseFreeze), outcomeHibernated).(prometheus.Histogram).Write(&counted); err != nil || counted.GetHistogram().GetSampleCount() != 1 {
		t.Errorf("%v, %v", counted.GetHistogram(), err)
	}
}

// mute takes no order.
type mute struct{ Orders }

func (mute) Unfreeze(context.Context, string, *corev1.Pod, int64) error {
	return sandboxdclient.ErrNoFreezer
}

// What takes no order was never frozen, unless the status says that it was.
func TestUnfreezeThatIsNotTaken(t *testing.T) {
	for what, status := range map[string]*v1alpha1.PauseStatus{
		"never frozen": nil,
		"frozen":       {Order: 1, State: v1alpha1.ReasonFrozen, Stopped: true},
		"resuming":     {Order: 1, State: v1alpha1.ReasonResuming, Stopped: true},
	} {
		s, pod := runs()
		s.Spec.Paused, s.Spec.PauseMode, s.Spec.PauseOrder, s.Status.Pause = true, v1alpha1.PauseFreeze, 1, status
		p, err := New(withSandbox(t, s, pod), routecache.New(10), mute{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		resumed := s.DeepCopy()
		err = p.Resume(t.Context(), resumed, nil)
		if resumed.Spec.Paused {
			t.Fatalf("%s: it is not resumed: %v", what, err)
		}
		if awake := p.EnsureAwake(t.Context(), resumed, pod); (err == nil) != (status == nil) || (awake == nil) != (status == nil) {
			t.Errorf("%s: Resume %v, Awake %v", what, err, awake)
		}
	}
}

// withSandbox is an API server with a sandbox and its pod.
func withSandbox(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

// runs is a sandbox that runs, and its pod.
func runs() (*v1alpha1.Sandbox, *corev1.Pod) {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "u", Generation: 3}}
	s.Spec.Namespace, s.Spec.Binding = "n", &v1alpha1.Binding{ClaimID: "c", PodName: "pod", PodUID: "u"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "pod", UID: "u",
		Labels:      map[string]string{v1alpha1.LabelSandboxID: "s", v1alpha1.LabelPhase: string(v1alpha1.PodRunning)},
		Annotations: map[string]string{v1alpha1.AnnotationClaim: "c", v1alpha1.AnnotationAddress: "10.0.0.1"},
	}}
	pod.Status.PodIP = "10.0.0.1"
	return s, pod
}

// Each request that waits for a resume is counted for as long as it waits.
func TestWaitsAreCounted(t *testing.T) {
	reading, read := make(chan struct{}), make(chan struct{})
	api := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			close(reading)
			<-read
			return errAway
		},
	})
	m := NewMetrics(nil)
	p, err := New(api, routecache.New(10), nil, m)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := p.Wake(t.Context(), "s", "u")
		done <- err
	}()
	<-reading
	if n := testutil.ToFloat64(m.waiting); n != 1 {
		t.Errorf("%v wait", n)
	}
	close(read)
	if err := <-done; !errors.Is(err, errAway) {
		t.Error(err)
	}
	var waits dto.Metric
	if err := m.waits.Write(&waits); err != nil || waits.GetHistogram().GetSampleCount() != 1 || testutil.ToFloat64(m.waiting) != 0 {
		t.Errorf("%v; %v, %v wait", err, waits.GetHistogram(), testutil.ToFloat64(m.waiting))
	}
}

var errAway = errors.New("the API server is away")
