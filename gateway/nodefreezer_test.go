package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/controlplane/e2b"
	"github.com/sandlane/sandlane/test/kubetest"
)

// onFreezer makes an idle pod of a node with a freezer, whose sandboxd answers nothing while
// the node is ordered to freeze the pod.
func (w *world) onFreezer() (*sandboxd, *stubNode) {
	w.t.Helper()
	d := w.sandboxd()
	pod := w.pod("base", d.addr, nil)
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: v1alpha1.PodConditionFrozen, Status: corev1.ConditionFalse})
	if err := w.c.Status().Update(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
	n := &stubNode{w: w, pod: pod}
	d.nodeStops = n.frozen.Load
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); n.run(ctx) }()
	w.t.Cleanup(func() { stop(); <-done })
	return d, n
}

// stubNode carries out the orders to a node's freezer for one pod, and says so in its status.
type stubNode struct {
	w      *world
	pod    *corev1.Pod
	frozen atomic.Bool
	late   sync.Mutex // held: the node sees nothing new
}

func (n *stubNode) run(ctx context.Context) {
	watch, err := n.w.c.Watch(ctx, &corev1.PodList{}, client.InNamespace(n.w.ns), client.MatchingFields{"metadata.name": n.pod.Name})
	if err != nil {
		n.w.t.Error(err)
		return
	}
	defer watch.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-watch.ResultChan():
			pod, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			n.late.Lock()
			n.frozen.Store(v1alpha1.FreezeOrdered(pod))
			n.late.Unlock()
			order := pod.Annotations[v1alpha1.AnnotationFreezeGeneration]
			if v1alpha1.NodeFreezerSettled(pod) {
				continue
			}
			patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"False","message":%q}]}}`, v1alpha1.PodConditionFrozen, order)
			if err := n.w.c.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, []byte(patch))); err != nil && ctx.Err() == nil {
				n.w.t.Error(err)
			}
		}
	}
}

// live reads a pod.
func (w *world) live(pod *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	out := &corev1.Pod{}
	if err := w.c.Get(context.WithoutCancel(w.t.Context()), client.ObjectKeyFromObject(pod), out); err != nil {
		w.t.Error(err)
	}
	return out
}

// wantOrder wants the pod's node to be ordered to freeze the pod, or not, for a generation.
func (w *world) wantOrder(n *stubNode, freeze bool, generation int64) {
	w.t.Helper()
	p := w.live(n.pod)
	if got := p.Annotations[v1alpha1.AnnotationFreezeGeneration]; v1alpha1.FreezeOrdered(p) != freeze || got != strconv.FormatInt(generation, 10) {
		w.t.Errorf("the node is ordered to freeze: %v, for generation %s; want %v, %d", v1alpha1.FreezeOrdered(p), got, freeze, generation)
	}
}

// paused creates a sandbox and pauses it, which leaves the node's freezer to the controller's
// repetition.
func (w *world) paused(t *testing.T, g *gateway) e2b.NewSandbox {
	t.Helper()
	n := w.new(newID())
	if _, err := g.create(t, n); err != nil {
		t.Fatal(err)
	}
	if err := g.api.sandboxes.Pause(t.Context(), w.ns, n.ID, true); err != nil {
		t.Fatal(err)
	}
	return n
}

// freezeOf is the controller's repetition of a pause.
func freezeOf(s *v1alpha1.Sandbox) controlplane.Quiesce {
	return controlplane.Quiesce{SandboxID: s.Name, ClaimID: s.Spec.Binding.ClaimID, Freeze: true, Generation: s.Generation}
}

// hibernates has a frozen sandbox give up its memory.
func (w *world) hibernates(id string) *v1alpha1.Sandbox {
	w.t.Helper()
	s := w.sandbox(id)
	if err := w.c.Patch(w.t.Context(), s, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"pauseMode":"Hibernate"}}`))); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// The node's freezer is ordered when sandboxd has stopped all, and is not needed any more
// before sandboxd is asked again; what sandboxd has done is not asked for twice.
func TestNodeFreezer(t *testing.T) {
	w := newWorld(t)
	d, node := w.onFreezer()
	g, other := w.gateway(), w.gateway()
	n, ctx := w.paused(t, g), t.Context()
	repeat := func(at *gateway) {
		t.Helper()
		s := w.sandbox(n.ID)
		order := freezeOf(s)
		wantError(t, "the controller's repetition", quiescer{at.own.pauser}.Quiesce(ctx, order), nil)
		w.wantOrder(node, true, s.Generation)
	}
	repeat(g)
	repeat(other)
	repeat(g)
	if got := d.carriedOut(); len(got) != 3 {
		t.Errorf("sandboxd was asked to %v", got)
	}
	if _, was, err := other.api.sandboxes.Resume(ctx, w.ns, n.ID, time.Minute); err != nil || !was {
		t.Fatalf("resume: %v, %v", was, err)
	}
	s := w.sandbox(n.ID)
	w.wantOrder(node, false, s.Generation)
	if got := d.carriedOut(); got[len(got)-1] != fmt.Sprintf("unfreeze %d", s.Generation) {
		t.Errorf("sandboxd was asked to %v", got)
	}
	var before string // the pod's version once its node has said that it carried the order out
	kubetest.Eventually(t, 20*time.Second, "the node to have carried the order out", func() error {
		pod := w.live(node.pod)
		if !v1alpha1.NodeFreezerSettled(pod) {
			return errors.New("it has not")
		}
		before = pod.ResourceVersion
		return nil
	})
	kubetest.Eventually(t, 20*time.Second, "a route at the gateway that has paused it", func() error {
		if err := g.route(t, w, n.ID); err != nil {
			return err
		}
		if g.cache.Get(n.ID) == nil {
			return errors.New("there is none")
		}
		return nil
	})
	if after := w.live(node.pod).ResourceVersion; after != before {
		t.Error("an order that is there already was written again")
	}
	if err := other.api.sandboxes.Pause(ctx, w.ns, n.ID, true); err != nil {
		t.Fatal(err)
	}
	repeat(g)
}

// The controller may have the order repeated before the gateway that pauses the sandbox comes
// to its own: that one leaves it.
func TestNodeFreezerBeforeThePause(t *testing.T) {
	w := newWorld(t)
	d, node := w.onFreezer()
	g := w.gateway()
	slow, held := w.holding(`"/spec/paused"`)
	held.answers = true
	n, ctx := w.new(newID()), t.Context()
	if _, err := slow.create(t, n); err != nil {
		t.Fatal(err)
	}
	paused := make(chan error, 1)
	go func() { paused <- slow.api.sandboxes.Pause(ctx, w.ns, n.ID, true) }()
	held.await(t, paused)
	s := w.sandbox(n.ID)
	wantError(t, "the controller's repetition", quiescer{g.own.pauser}.Quiesce(ctx, freezeOf(s)), nil)
	close(held.pass)
	wantError(t, "the pause", <-paused, nil)
	w.wantOrder(node, true, s.Generation)
	if got := d.carriedOut(); got[len(got)-1] != fmt.Sprintf("freeze %d", s.Generation) {
		t.Errorf("sandboxd was asked to %v", got)
	}
}

// One that was frozen and is to hibernate answers again, for its files, with all stopped.
func TestNodeFreezerLeavesFiles(t *testing.T) {
	w := newWorld(t)
	d, node := w.onFreezer()
	g := w.gateway()
	n, ctx := w.paused(t, g), t.Context()
	s := w.sandbox(n.ID)
	order := freezeOf(s)
	order.Saves = true
	wantError(t, "the controller's repetition", quiescer{g.own.pauser}.Quiesce(ctx, order), nil)
	w.wantOrder(node, true, s.Generation)
	s = w.hibernates(n.ID)
	order.Generation = s.Generation
	wantError(t, "without a store", quiescer{g.own.pauser}.Quiesce(ctx, order), controlplane.ErrNotSaved)
	w.wantOrder(node, false, s.Generation)
	if got := d.carriedOut(); got[len(got)-1] != fmt.Sprintf("freeze %d", s.Generation) {
		t.Errorf("sandboxd was asked to %v", got)
	}
}

// heldWrites holds writes up that have something in their body.
type heldWrites struct {
	what    string
	answers bool // only the answers to them are held up
	next    http.RoundTripper
	reached chan struct{} // closed: one is held up
	pass    chan struct{} // closed: they go on
	once    sync.Once
}

func (h *heldWrites) hold() {
	h.once.Do(func() { close(h.reached) })
	<-h.pass
}

// What orders a node's freezer has one of these in its body.
const (
	toFreeze = `"op":"add","path":"/metadata/annotations/sandlane.dev~1freeze"`
	toAny    = `"op":"add","path":"/metadata/annotations/sandlane.dev~1freeze-generation"`
)

// holding makes a gateway whose writes are held up that have this in their body.
func (w *world) holding(what string) (*gateway, *heldWrites) {
	w.t.Helper()
	held := &heldWrites{what: what, reached: make(chan struct{}), pass: make(chan struct{})}
	cfg := rest.CopyConfig(kubetest.Config(w.t))
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { held.next = next; return held })
	return w.gatewayWith(cfg), held
}

// await waits until a write of something that goes on beside the test is held up.
func (h *heldWrites) await(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case <-h.reached:
	case err := <-done:
		t.Fatalf("the write that was to be held up: it ended with %v", err)
	}
}

func (h *heldWrites) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(h.what)) {
			if h.answers {
				defer h.hold()
			} else {
				h.hold()
			}
		}
	}
	return h.next.RoundTrip(r)
}

// An order to freeze that arrives late stops nothing of a sandbox that was resumed since, and
// not the sandboxd of one that is to send its files.
func TestDelayedNodeFreeze(t *testing.T) {
	for name, c := range map[string]struct {
		since   func(t *testing.T, w *world, g *gateway, id string)
		ordered string // of sandboxd since
	}{
		"resumed": {func(t *testing.T, w *world, g *gateway, id string) {
			if _, was, err := g.api.sandboxes.Resume(t.Context(), w.ns, id, time.Minute); err != nil || !was {
				t.Fatalf("resume: %v, %v", was, err)
			}
		}, "unfreeze %d"},
		"hibernating": {func(t *testing.T, w *world, g *gateway, id string) {
			s := w.hibernates(id)
			order := freezeOf(s)
			order.Saves = true
			wantError(t, "without a store", quiescer{g.own.pauser}.Quiesce(t.Context(), order), controlplane.ErrNotSaved)
		}, "freeze %d"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			d, node := w.onFreezer()
			g := w.gateway()
			slow, held := w.holding(toFreeze)
			n, ctx := w.paused(t, g), t.Context()
			order := freezeOf(w.sandbox(n.ID))
			done := make(chan error, 1)
			go func() { done <- quiescer{slow.own.pauser}.Quiesce(ctx, order) }()
			held.await(t, done)
			c.since(t, w, g, n.ID)
			close(held.pass)
			wantError(t, "the delayed order", <-done, controlplane.ErrMoved)
			s := w.sandbox(n.ID)
			w.wantOrder(node, false, s.Generation)
			if got := d.carriedOut(); got[len(got)-1] != fmt.Sprintf(c.ordered, s.Generation) {
				t.Errorf("sandboxd was asked to %v", got)
			}
		})
	}
}

// A resume that comes before the node has carried out the order to freeze is over only when
// the node cannot freeze the pod for that order any more.
func TestResumeOutrunsTheNode(t *testing.T) {
	w := newWorld(t)
	d, node := w.onFreezer()
	g := w.gateway()
	n, ctx := w.paused(t, g), t.Context()
	s := w.sandbox(n.ID)
	node.late.Lock()
	wantError(t, "the controller's repetition", quiescer{g.own.pauser}.Quiesce(ctx, freezeOf(s)), nil)
	wantLateResume(t, d, node, s.Generation+1, w.resume(g, n.ID))
}

// So it is if the order to freeze comes between the resume's look at the pod and its write.
func TestResumeMeetsAnOrder(t *testing.T) {
	w := newWorld(t)
	d, node := w.onFreezer()
	freezing, freeze := w.holding(toFreeze)
	resuming, run := w.holding(toAny)
	n := w.paused(t, freezing)
	s, ordered := w.sandbox(n.ID), make(chan error, 1)
	go func() { ordered <- quiescer{freezing.own.pauser}.Quiesce(t.Context(), freezeOf(s)) }()
	freeze.await(t, ordered)
	resumed := w.resume(resuming, n.ID)
	run.await(t, resumed)
	node.late.Lock()
	close(freeze.pass)
	wantError(t, "the order to freeze", <-ordered, nil)
	close(run.pass)
	wantLateResume(t, d, node, s.Generation+1, resumed)
}

// resume resumes a sandbox beside the test.
func (w *world) resume(g *gateway, id string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, was, err := g.api.sandboxes.Resume(w.t.Context(), w.ns, id, time.Minute)
		if err == nil && !was {
			err = errors.New("it was not paused")
		}
		done <- err
	}()
	return done
}

// wantLateResume wants a resume to wait for the node, which sees nothing new yet.
func wantLateResume(t *testing.T, d *sandboxd, node *stubNode, generation int64, resumed <-chan error) {
	t.Helper()
	kubetest.Eventually(t, 20*time.Second, "sandboxd to let it run", func() error {
		if got := d.carriedOut(); got[len(got)-1] != fmt.Sprintf("unfreeze %d", generation) {
			return fmt.Errorf("it was asked to %v", got)
		}
		return nil
	})
	select {
	case err := <-resumed:
		node.late.Unlock()
		t.Fatalf("the resume is over (%v), and the node may still freeze the sandbox", err)
	case <-time.After(100 * time.Millisecond): // the resume would be over by now
	}
	node.late.Unlock()
	wantError(t, "the resume", <-resumed, nil)
	if node.frozen.Load() {
		t.Error("the sandbox is resumed and frozen")
	}
}
