package idletimeout

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
)

// gateways is a LastActiveSource with a Memory. at is called for each poll.
type gateways struct {
	polls int
	at    func(poll int) (map[string]time.Time, error)
	used  map[string]time.Time
	floor time.Time
	kept  func(id, claim string) bool
	since map[string]seenRunning // what the leader before noted
	// prepared are the batches asked for; prepare answers, if set.
	prepared [][]controlplane.Release
	prepare  func([]controlplane.Release) (map[string]bool, error)
}

type seenRunning struct {
	at    time.Time
	order int64
}

func (g *gateways) PrepareRelease(_ context.Context, releases []controlplane.Release) (map[string]bool, error) {
	g.prepared = append(g.prepared, releases)
	if g.prepare == nil {
		return nil, nil
	}
	return g.prepare(releases)
}

func (g *gateways) Poll(context.Context) (err error) {
	g.polls++
	g.used, err = g.at(g.polls)
	return err
}

func (g *gateways) LastActive(id, _ string) (time.Time, bool) {
	at, ok := g.used[id]
	return at, ok
}
func (g *gateways) Floor() time.Time                           { return g.floor }
func (g *gateways) Retain(keep func(id, claim string) bool)    { g.kept = keep }
func (*gateways) SeenRunning(string, string, time.Time, int64) {}
func (g *gateways) RunningSince(id, _ string) (time.Time, int64, bool) {
	s, ok := g.since[id]
	return s.at, s.order, ok
}
func nobody(int) (map[string]time.Time, error) { return nil, nil }

type store map[string]time.Time

func (s store) SaveLastActive(_ context.Context, sandbox *v1alpha1.Sandbox, at time.Time) error {
	s[sandbox.Name] = at
	return nil
}

func setup(t testing.TB, g *gateways, objects ...client.Object) (*IdleTimeoutReconciler, *clocktesting.FakeClock, client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	clock := clocktesting.NewFakeClock(time.Now())
	r := NewIdleTimeoutReconciler(c, nil, time.Second, g)
	r.Clock = clock
	r.feed = &listed{client: c}
	return r, clock, c
}

// listed is the feed of a client without watches: at each look it compares what
// there is with what there was.
type listed struct {
	client client.Client
	known  map[string]*v1alpha1.Sandbox
}

func (*listed) Start(context.Context) error { return nil }

func (l *listed) Changed() map[string]*v1alpha1.Sandbox {
	var list v1alpha1.SandboxList
	if err := l.client.List(context.Background(), &list); err != nil {
		panic(err) // it is in memory
	}
	changed, now := map[string]*v1alpha1.Sandbox{}, map[string]*v1alpha1.Sandbox{}
	for i := range list.Items {
		s := &list.Items[i]
		now[s.Name] = s
		if was := l.known[s.Name]; was == nil || was.ResourceVersion != s.ResourceVersion {
			changed[s.Name] = s
		}
		delete(l.known, s.Name)
	}
	for name := range l.known {
		changed[name] = nil
	}
	l.known = now
	return changed
}

func running(id string, idle time.Duration) *v1alpha1.Sandbox {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id, UID: "u-" + "1", Generation: 1}}
	s.Spec.Namespace, s.Spec.Pool = "n", "p"
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: "c-" + id, PodName: "pod", PodUID: "u"}
	s.Spec.Timeouts.Idle = &metav1.Duration{Duration: idle}
	s.Status.Phase = v1alpha1.SandboxRunning
	return s
}

func ended(t *testing.T, c client.Client, id string) v1alpha1.EndReason {
	t.Helper()
	var s v1alpha1.Sandbox
	if err := c.Get(t.Context(), client.ObjectKey{Name: id}, &s); err != nil {
		t.Fatal(err)
	}
	if s.Spec.End == nil {
		return ""
	}
	return s.Spec.End.Reason
}

func TestIdleSandboxIsReleasedAndOthersAreNot(t *testing.T) {
	g := &gateways{at: nobody}
	starting := running("starting", 5*time.Second)
	starting.Status.Phase = v1alpha1.SandboxStarting
	r, clock, c := setup(t, g, running("idle", 5*time.Second), running("used", 5*time.Second), running("forever", 0), starting)
	r.check(t.Context())
	clock.Step(5*time.Second - time.Millisecond)
	g.at = func(int) (map[string]time.Time, error) { return map[string]time.Time{"used": clock.Now()}, nil }
	r.check(t.Context())
	if got := ended(t, c, "idle"); got != "" {
		t.Fatalf("released before its time: %s", got)
	}
	clock.Step(time.Millisecond)
	r.check(t.Context())
	for id, want := range map[string]v1alpha1.EndReason{"idle": v1alpha1.EndIdleTimeout, "used": "", "forever": "", "starting": ""} {
		if got := ended(t, c, id); got != want {
			t.Errorf("%s: end %q, want %q", id, got, want)
		}
	}
	r.check(t.Context())
	if len(r.claims.all) != 3 || len(r.claims.byID) != 3 || len(r.claims.starting) != 1 {
		t.Errorf("remembers %+v", r.claims)
	}
	clock.Step(retainEvery)
	r.check(t.Context())
	if g.kept("idle", "c-idle") || g.kept("idle", "") || !g.kept("used", "c-used") || !g.kept("used", "") || g.kept("used", "another claim") {
		t.Error("the source is to forget the claims that are over, and no other")
	}
}

func TestNothingIsReleasedWhileAGatewayIsSilent(t *testing.T) {
	silent := errors.New("a gateway does not answer")
	for name, at := range map[string]func(int) (map[string]time.Time, error){
		"at first":              func(int) (map[string]time.Time, error) { return nil, silent },
		"when asked to prepare": nobody,
	} {
		t.Run(name, func(t *testing.T) {
			g := &gateways{at: nobody}
			r, clock, c := setup(t, g, running("s", 5*time.Second))
			r.check(t.Context())
			clock.Step(time.Hour)
			g.at = at
			g.prepare = func([]controlplane.Release) (map[string]bool, error) { return nil, silent }
			r.check(t.Context())
			if got := ended(t, c, "s"); got != "" {
				t.Fatalf("released: %s", got)
			}
			g.at, g.prepare = nobody, nil
			r.check(t.Context())
			if got := ended(t, c, "s"); got != v1alpha1.EndIdleTimeout {
				t.Errorf("end %q when all answer again", got)
			}
		})
	}
}

// TestAnotherClaim: what was judged is a claim; the same ID bound anew is not
// ended in its place.
func TestAnotherClaim(t *testing.T) {
	r, clock, c := setup(t, &gateways{at: nobody}, running("s", 5*time.Second))
	r.takeChanges()
	clock.Step(time.Minute)
	anew := read(t, c, "s")
	anew.Spec.Binding.ClaimID = "another"
	if err := c.Update(t.Context(), anew); err != nil {
		t.Fatal(err)
	}
	r.takeChanges()
	picked, err := r.pick(t.Context(), r.claims.all, newTimeouts(r.client))
	if err != nil || len(picked) != 0 {
		t.Errorf("picked %v, %v: idle time of another claim counts", picked, err)
	}
}

// TestShortTimeoutsWaitForTheGateways: a silent connection's last use may be
// almost four ticks old.
func TestShortTimeoutsWaitForTheGateways(t *testing.T) {
	g := &gateways{at: nobody}
	r, clock, c := setup(t, g, running("silent", time.Second), running("unused", time.Second), running("forever", 0))
	r.check(t.Context())
	clock.Step(time.Minute)
	opened := clock.Now()
	g.at = func(int) (map[string]time.Time, error) {
		return map[string]time.Time{"silent": opened, "unused": opened, "forever": opened}, nil
	}
	clock.Step(leastIdle - time.Millisecond)
	r.check(t.Context())
	for _, id := range []string{"silent", "unused"} {
		if got := ended(t, c, id); got != "" {
			t.Errorf("%s: end %q before the least idle timeout", id, got)
		}
	}
	g.at = func(int) (map[string]time.Time, error) {
		return map[string]time.Time{"silent": clock.Now(), "unused": opened}, nil
	}
	clock.Step(time.Millisecond)
	r.check(t.Context())
	for id, want := range map[string]v1alpha1.EndReason{"silent": "", "unused": v1alpha1.EndIdleTimeout, "forever": ""} {
		if got := ended(t, c, id); got != want {
			t.Errorf("%s: end %q, want %q", id, got, want)
		}
	}
}

func TestIdle(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, tt := range []struct {
		name                 string
		timeout              time.Duration
		sighted, used, floor time.Time
		want                 bool
	}{
		{name: "long unused", timeout: time.Minute, sighted: ago(time.Hour), want: true},
		{name: "exactly", timeout: time.Minute, sighted: ago(time.Minute), want: true},
		{name: "just before", timeout: time.Minute, sighted: ago(time.Minute - 1)},
		{name: "never", timeout: 0, sighted: ago(time.Hour)},
		{name: "not sighted", timeout: time.Minute},
		{name: "used lately", timeout: time.Minute, sighted: ago(time.Hour), used: ago(time.Second)},
		{name: "used long ago", timeout: time.Minute, sighted: ago(time.Hour), used: ago(2 * time.Minute), want: true},
		{name: "a gateway lost its memory", timeout: time.Minute, sighted: ago(time.Hour), used: ago(2 * time.Minute), floor: ago(time.Second)},
		{name: "used in the future", timeout: time.Minute, sighted: ago(time.Hour), used: now.Add(time.Hour)},
	} {
		if at, ok := idleAt(tt.timeout, tt.sighted, tt.used, tt.floor); ok && !now.Before(at) != tt.want || !ok && tt.want {
			t.Errorf("%s: %v, %v", tt.name, at, ok)
		}
	}
}

func TestLastActiveIsWrittenSparingly(t *testing.T) {
	var objects []client.Object
	used := map[string]time.Time{}
	for i := range 30 {
		s := running("s"+string(rune('a'+i)), time.Hour)
		objects = append(objects, s)
	}
	g := &gateways{}
	r, clock, _ := setup(t, g, objects...)
	g.at = func(int) (map[string]time.Time, error) {
		for _, o := range objects {
			used[o.GetName()] = clock.Now()
		}
		return used, nil
	}
	s := store{}
	r.store = s
	r.check(t.Context())
	if len(s) != writesPerSecond {
		t.Errorf("%d writes at once, want %d", len(s), writesPerSecond)
	}
	clock.Step(time.Second)
	r.check(t.Context())
	if len(s) != 30 {
		t.Errorf("%d written after a second, want all 30", len(s))
	}
	first := maps.Clone(s)
	clock.Step(14 * time.Minute)
	r.check(t.Context())
	if !maps.Equal(s, first) {
		t.Error("written again within a quarter of the idle timeout")
	}
	clock.Step(time.Minute)
	r.check(t.Context())
	clock.Step(time.Second)
	r.check(t.Context())
	for id, at := range first {
		if s[id].Equal(at) {
			t.Errorf("%s: not written again after a quarter of the idle timeout", id)
		}
	}
}
