package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// made is a sandbox that runs, its sandboxd, and two gateways.
func made(t *testing.T) (w *world, d *sandboxd, g, other *gateway, id string) {
	t.Helper()
	w = newWorld(t)
	d = w.ready()
	g, other = w.gateway(), w.gateway()
	n := w.new(newID())
	if _, err := g.create(t, n); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the other gateway to see it run", func() error {
		if a := other.index.Resolve(n.ID); a.State != routing.Running {
			return fmt.Errorf("it is %s", a.State)
		}
		return nil
	})
	return w, d, g, other, n.ID
}

// lookup is what a gateway's index, corrected, tells a request for the sandbox.
func (g *gateway) lookup(id string) routing.State {
	return g.own.Lookup(id).State
}

// route activates the sandbox as a request that finds it starting does.
func (g *gateway) route(t *testing.T, w *world, id string) error {
	t.Helper()
	return g.activator.Activate(t.Context(), routing.Request{ID: id, Namespace: w.ns, Pool: "base", Team: "team"})
}

// A pause takes the route and the end away before the freezer is asked; a resume gives
// the end back, and routes only after the freezer has answered, at every gateway.
func TestPauseAndResume(t *testing.T) {
	w, d, g, other, id := made(t)
	x, ctx := g.api.sandboxes, t.Context()
	if err := x.Pause(ctx, w.ns, id, true); err != nil {
		t.Fatal(err)
	}
	s := w.sandbox(id)
	if !s.Spec.Paused || s.Spec.PauseMode != v1alpha1.PauseFreeze || s.Spec.Timeouts.EndAt != nil {
		t.Errorf("the spec is %+v", s.Spec)
	}
	if got := fmt.Sprint(d.carriedOut()); got != fmt.Sprintf("[unfreeze %d freeze %d]", s.Spec.PauseOrder-1, s.Spec.PauseOrder) {
		t.Errorf("the freezer was asked to %s", got)
	}
	if a := g.lookup(id); a != routing.Paused || g.cache.Get(id) != nil {
		t.Errorf("the gateway that paused it says %v, its route is %v", a, g.cache.Get(id))
	}
	kubetest.Eventually(t, "the other gateway to see it", func() error {
		if a := other.lookup(id); a != routing.Paused {
			return fmt.Errorf("it is %v", a)
		}
		return nil
	})
	for what, g := range map[string]*gateway{"this gateway": g, "the other": other} {
		if err := g.route(t, w, id); err != nil || g.cache.Get(id) != nil {
			t.Errorf("%s: activating it: %v, and the route is %v", what, err, g.cache.Get(id))
		}
	}
	wantError(t, "pausing it again", x.Pause(ctx, w.ns, id, true), restapi.ErrNotRunning)
	wantError(t, "pausing it from another namespace", x.Pause(ctx, "default", id, true), restapi.ErrNotFound)
	_, err := x.SetEnd(ctx, w.ns, id, time.Now().Add(time.Minute), true)
	wantError(t, "setting its end", err, restapi.ErrPaused)
	if m, err := x.Metrics(ctx, w.ns, id, false); err != nil || len(m) != 0 {
		t.Errorf("metrics: %v, %v", m, err)
	}
	if got, err := x.Get(ctx, w.ns, id); err != nil || !got.Paused || time.Since(got.EndAt) > time.Minute {
		t.Errorf("get: %+v, %v", got, err)
	}
	end := time.Now().Add(10 * time.Minute)
	got, was, err := other.api.sandboxes.Resume(ctx, w.ns, id, 10*time.Minute)
	if err != nil || !was || got.Paused || got.EndAt.Sub(end).Abs() > 2*time.Second {
		t.Fatalf("resume: %+v, %v, %v", got, was, err)
	}
	s = w.sandbox(id)
	if orders := d.carriedOut(); s.Spec.Paused || s.Spec.PauseMode == "" || orders[len(orders)-1] != fmt.Sprintf("unfreeze %d", s.Spec.PauseOrder) {
		t.Errorf("the spec is %+v, the freezer was asked to %v", s.Spec, orders)
	}
	// No status says that it runs: a gateway that has not resumed it asks the freezer before
	// it routes.
	for what, g := range map[string]*gateway{"this gateway": g, "the other": other} {
		asks := map[bool]int{true: 1, false: 0}[what == "this gateway"]
		kubetest.Eventually(t, what+" to see it", func() error {
			if a := g.lookup(id); a != routing.MaybeFrozen {
				return fmt.Errorf("it is %v", a)
			}
			return nil
		})
		before := len(d.carriedOut())
		if err := g.route(t, w, id); err != nil || g.cache.Get(id) == nil || len(d.carriedOut()) != before+asks {
			t.Errorf("%s: %v, the route is %v, the freezer was asked to %v", what, err, g.cache.Get(id), d.carriedOut())
		}
	}
	if _, was, err := x.Resume(ctx, w.ns, id, time.Minute); err != nil || was {
		t.Errorf("resuming it again: %v, %v", was, err)
	}
}

// The status of the last resume spares gateways the question, also after other changes of the
// spec; a pause and a resume make them ask again.
func TestAwakeByStatus(t *testing.T) {
	w, d, g, _, id := made(t)
	x, ctx := g.api.sandboxes, t.Context()
	if err := x.Pause(ctx, w.ns, id, true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := x.Resume(ctx, w.ns, id, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	s := w.sandbox(id)
	s.Status.Pause = &v1alpha1.PauseStatus{Order: s.Spec.PauseOrder, State: v1alpha1.ReasonResumed, Since: metav1.Now()}
	if err := w.c.Status().Update(ctx, s); err != nil {
		t.Fatal(err)
	}
	see := func(want routing.State) {
		t.Helper()
		kubetest.Eventually(t, "the gateway to see it", func() error {
			if a := g.lookup(id); a != want {
				return fmt.Errorf("it is %v", a)
			}
			return nil
		})
	}
	see(routing.Running)
	before := len(d.carriedOut())
	if err := g.route(t, w, id); err != nil || g.cache.Get(id) == nil || len(d.carriedOut()) != before {
		t.Errorf("%v, the route is %v, the freezer was asked to %v", err, g.cache.Get(id), d.carriedOut())
	}
	changed, err := x.SetEnd(ctx, w.ns, id, time.Now().Add(time.Minute), true)
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the gateway to see the change", func() error {
		if at := g.index.Life(id).EndAt; !at.Equal(changed.EndAt) {
			return fmt.Errorf("it ends at %v", at)
		}
		return nil
	})
	if r, a := g.cache.Get(id), g.lookup(id); r == nil || a != routing.Running {
		t.Errorf("after another change of its spec the route is %v, and it is %v", r, a)
	}
	// A pause and a resume elsewhere, of which the watch may show the second alone.
	other := w.gateway()
	if err := other.api.sandboxes.Pause(ctx, w.ns, id, true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.api.sandboxes.Resume(ctx, w.ns, id, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	see(routing.MaybeFrozen)
	if r := g.cache.Get(id); r != nil {
		t.Errorf("the route is %v", r)
	}
}

// A pause that fails is undone, also for a client that has left: the sandbox runs for as
// long as was left.
func TestFailedPauseIsUndone(t *testing.T) {
	w, d, g, _, id := made(t)
	end := w.sandbox(id).Spec.Timeouts.EndAt
	d.mu.Lock()
	d.freezeStatus = http.StatusInternalServerError
	d.mu.Unlock()
	if err := g.api.sandboxes.Pause(t.Context(), w.ns, id, true); err == nil {
		t.Fatal("it succeeds")
	}
	s := w.sandbox(id)
	if s.Spec.Paused || s.Spec.Timeouts.EndAt == nil || s.Spec.Timeouts.EndAt.Before(end) || s.Spec.Timeouts.EndAt.Sub(end.Time) > time.Minute {
		t.Errorf("the spec is %+v", s.Spec)
	}
	if got := fmt.Sprint(d.carriedOut()); got != fmt.Sprintf("[unfreeze %d unfreeze %d]", s.Spec.PauseOrder-2, s.Spec.PauseOrder) {
		t.Errorf("the freezer was asked to %s", got)
	}
}

// What cannot be frozen is refused before anything is written.
func TestUnfreezablePods(t *testing.T) {
	w := newWorld(t)
	w.pool("two", v1alpha1.SandboxdPort, func(p *v1alpha1.SandboxPool) {
		spec := &p.Spec.Template.Template.Spec
		second := spec.Containers[0]
		second.Name, second.Ports = "second", nil
		spec.Containers = append(spec.Containers, second)
	})
	d := w.sandboxd()
	w.pod("two", d.addr, nil)
	g := w.gateway()
	n := w.new(newID())
	n.Pool = "two"
	if _, err := g.create(t, n); err != nil {
		t.Fatal(err)
	}
	generation := w.sandbox(n.ID).Generation
	wantError(t, "pausing it", g.api.sandboxes.Pause(t.Context(), w.ns, n.ID, true), restapi.ErrInvalid)
	if s := w.sandbox(n.ID); s.Generation != generation || len(d.carriedOut()) != 0 {
		t.Errorf("the spec is %+v, the freezer was asked to %v", s.Spec, d.carriedOut())
	}
}

// A freezer that cannot freeze, or does not answer, is noticed before anything is
// written.
func TestPauseAsksFirst(t *testing.T) {
	w, d, g, _, id := made(t)
	generation := w.sandbox(id).Generation
	for status, want := range map[int]error{
		http.StatusUnauthorized: restapi.ErrInvalid, http.StatusNotImplemented: restapi.ErrInvalid,
		http.StatusAccepted: restapi.ErrNotRunning, http.StatusInternalServerError: restapi.ErrUnanswered,
	} {
		d.answerUnfreezes(status)
		wantError(t, fmt.Sprint(status), g.api.sandboxes.Pause(t.Context(), w.ns, id, true), want)
		if s := w.sandbox(id); s.Generation != generation || s.Spec.PauseMode != "" || len(d.carriedOut()) != 0 {
			t.Errorf("%d: the spec is %+v, the freezer was asked to %v", status, s.Spec, d.carriedOut())
		}
	}
}

// An order of the controller is carried out only for the sandbox that it is about.
func TestEnforcePause(t *testing.T) {
	w, d, g, _, id := made(t)
	if err := g.api.sandboxes.Pause(t.Context(), w.ns, id, true); err != nil {
		t.Fatal(err)
	}
	s, q := w.sandbox(id), g.own.pauser
	right := controlplane.EnforcePause{SandboxID: id, ClaimID: s.Spec.Binding.ClaimID, Freeze: true, Order: s.Spec.PauseOrder}
	for what, change := range map[string]func(*controlplane.EnforcePause){
		"another sandbox": func(q *controlplane.EnforcePause) { q.SandboxID = newID() },
		"another claim":   func(q *controlplane.EnforcePause) { q.ClaimID = "c" },
		"the opposite":    func(q *controlplane.EnforcePause) { q.Freeze = false },
		"another order":   func(q *controlplane.EnforcePause) { q.Order-- },
	} {
		wrong := right
		change(&wrong)
		wantError(t, what, q.EnforcePause(t.Context(), wrong), writes.ErrStale)
	}
	before := len(d.carriedOut())
	if before != 2 {
		t.Errorf("the freezer was asked to %v", d.carriedOut())
	}
	wantError(t, "the right one", q.EnforcePause(t.Context(), right), nil)
	if n := len(d.carriedOut()); n != before+1 {
		t.Errorf("the freezer was asked to %v", d.carriedOut())
	}
}

// Many first requests at two gateways resume a paused sandbox once, for its lifetime; one
// that was authorised for another sandbox of this name does not.
func TestWake(t *testing.T) {
	w := newWorld(t)
	d := w.ready()
	g, other := w.gateway(), w.gateway()
	n := w.new(newID())
	n.AutoPause, n.AutoResume, n.Lifetime = true, true, 10*time.Minute
	if _, err := g.create(t, n); err != nil {
		t.Fatal(err)
	}
	if err := g.api.sandboxes.Pause(t.Context(), w.ns, n.ID, true); err != nil {
		t.Fatal(err)
	}
	was, begun := w.sandbox(n.ID), time.Now()
	wake := func(at *gateway, uid types.UID) error {
		return at.activator.Activate(t.Context(),
			routing.Request{ID: n.ID, Namespace: w.ns, Pool: "base", Team: "team", Resume: routing.Resume{UID: uid}})
	}
	if err := wake(g, "another"); err != nil || !w.sandbox(n.ID).Spec.Paused {
		t.Errorf("for another sandbox: %v, and it is resumed", err)
	}
	errs := make(chan error, 100)
	for i := range cap(errs) {
		at := []*gateway{g, other}[i%2]
		go func() { errs <- wake(at, was.UID) }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	s := w.sandbox(n.ID)
	if s.Spec.Paused || s.Generation != was.Generation+1 || s.Spec.Timeouts.EndAt == nil || s.Spec.Timeouts.EndAt.Sub(begun.Add(10*time.Minute)).Abs() > 10*time.Second {
		t.Errorf("generation %d, then %d: %+v", was.Generation, s.Generation, s.Spec)
	}
	// By the gateway that resumed it, and perhaps by the other, before that one routes.
	if orders := d.carriedOut()[2:]; len(orders) > 2 || slices.ContainsFunc(orders, func(o string) bool { return o != fmt.Sprintf("unfreeze %d", s.Spec.PauseOrder) }) {
		t.Errorf("the freezer was asked to %v", orders)
	}
	if err := g.route(t, w, n.ID); err != nil || g.cache.Get(n.ID) == nil {
		t.Errorf("it is not routed to: %v", err)
	}
}

// A request does not resume what does not ask for it, whatever extproc was told.
func TestWakeOfWhatDoesNot(t *testing.T) {
	w, d, g, _, id := made(t)
	if err := g.api.sandboxes.Pause(t.Context(), w.ns, id, true); err != nil {
		t.Fatal(err)
	}
	r := routing.Request{ID: id, Namespace: w.ns, Pool: "base", Team: "team", Resume: routing.Resume{UID: w.sandbox(id).UID}}
	if err := g.activator.Activate(t.Context(), r); err != nil {
		t.Error(err)
	}
	if s := w.sandbox(id); !s.Spec.Paused || len(d.carriedOut()) != 2 {
		t.Errorf("the spec is %+v, the freezer was asked to %v", s.Spec, d.carriedOut())
	}
}

// A pool's limit of paused sandboxes is told before anything is written; a sandbox that a
// request makes pauses and resumes as its pool says, and has no end when it is resumed.
func TestPauseOfThePool(t *testing.T) {
	w := newWorld(t)
	most := int32(1)
	w.pool("resting", v1alpha1.SandboxdPort, func(p *v1alpha1.SandboxPool) {
		p.Spec.Pause = &v1alpha1.PoolPause{OnTimeout: v1alpha1.TimeoutPause, AutoResume: v1alpha1.AutoResumeAlways, MaxPaused: &most}
	})
	g, ctx := w.gateway(), t.Context()
	first, second := kubetest.Name("first"), w.new(newID())
	second.Pool = "resting"
	w.pod("resting", w.sandboxd().addr, nil)
	err := g.activator.Activate(ctx, routing.Request{ID: first, Namespace: w.ns, Pool: "resting", New: true, MayClaim: true})
	if err != nil {
		t.Fatal(err)
	}
	d := w.sandboxd()
	w.pod("resting", d.addr, nil)
	if _, err := g.create(t, second); err != nil {
		t.Fatal(err)
	}
	s := w.sandbox(first)
	if o := s.Spec.Timeouts; o.OnTimeout != v1alpha1.TimeoutPause || o.AutoResume != v1alpha1.AutoResumeAlways || w.sandbox(second.ID).Spec.Timeouts.OnTimeout != "" {
		t.Errorf("the first request's has %+v, the other %+v", o, w.sandbox(second.ID).Spec.Timeouts)
	}
	kubetest.Eventually(t, "the gateway to see both", func() error {
		if a, b := g.index.Resolve(first).UID, g.index.Resolve(second.ID).UID; a == "" || b == "" {
			return fmt.Errorf("it shows %q and %q", a, b)
		}
		return nil
	})
	d.answerUnfreezes(http.StatusInternalServerError)
	wantError(t, "one that its freezer refuses", g.api.sandboxes.Pause(ctx, w.ns, second.ID, true), restapi.ErrUnanswered)
	d.answerUnfreezes(0)
	if err := g.api.sandboxes.Pause(ctx, w.ns, first, true); err != nil {
		t.Fatalf("the room of the one that was not paused: %v", err)
	}
	generation := w.sandbox(second.ID).Generation
	wantError(t, "one too many, whatever the watch shows", g.api.sandboxes.Pause(ctx, w.ns, second.ID, true), restapi.ErrPausedLimit)
	kubetest.Eventually(t, "the gateway to see it", func() error {
		if n := g.index.Paused(w.ns, "resting"); n != 1 {
			return fmt.Errorf("%d are paused", n)
		}
		return nil
	})
	wantError(t, "one too many", g.api.sandboxes.Pause(ctx, w.ns, second.ID, true), restapi.ErrPausedLimit)
	if w.sandbox(second.ID).Generation != generation || len(d.carriedOut()) != 0 {
		t.Errorf("it was written; the freezer was asked to %v", d.carriedOut())
	}
	wantError(t, "the paused one", g.api.sandboxes.Pause(ctx, w.ns, first, true), restapi.ErrNotRunning)
	r := routing.Request{ID: first, Namespace: w.ns, Pool: "resting", Resume: routing.Resume{UID: s.UID}}
	if err := g.activator.Activate(ctx, r); err != nil || g.cache.Get(first) == nil {
		t.Errorf("resuming it: %v, and the route is %v", err, g.cache.Get(first))
	}
	if s := w.sandbox(first); s.Spec.Paused || s.Spec.Timeouts.EndAt != nil {
		t.Errorf("resumed: %+v", s.Spec)
	}
	kubetest.Eventually(t, "the gateway to see that none is paused", func() error {
		if n := g.index.Paused(w.ns, "resting"); n != 0 {
			return fmt.Errorf("%d are paused", n)
		}
		return nil
	})
	results := make(chan error, 2)
	for _, id := range []string{first, second.ID} {
		go func() { results <- g.api.sandboxes.Pause(ctx, w.ns, id, true) }()
	}
	one, other := <-results, <-results
	if (one == nil) == (other == nil) || !errors.Is(errors.Join(one, other), restapi.ErrPausedLimit) {
		t.Errorf("two at once: %v, %v; want that one is paused", one, other)
	}
}
