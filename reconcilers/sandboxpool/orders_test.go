package sandboxpool

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
)

// bursts is a pool, its decisions, and gateways where sandboxes wait, in steps of a
// tenth of a second. The watch is late, so are polls and what gateways hear of each
// other's claims; gateways fall silent, clients leave, sandboxes end.
type bursts struct {
	t      *testing.T
	rng    *rand.Rand
	at     time.Time
	pool   *v1alpha1.SandboxPool
	claims claims

	real, seen map[string]*corev1.Pod
	events     []podEvent // that the watch has not shown yet
	own        int        // of those, events of what the decisions wrote
	gateways   [3]struct {
		queue  map[string]bool // IDs that wait there
		silent bool
		asked  time.Time // of its last answer
		said   []string
		missed bool
	}
	waiting map[string]bool // IDs without a claim whose client is there
	made    int             // pods
	came    int             // IDs that have waited
	removed int             // pods
}

type podEvent struct {
	pod  *corev1.Pod
	gone bool
	own  bool
}

func newBursts(t *testing.T, seed uint64) *bursts {
	b := &bursts{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), at: now, //nolint:gosec // a model
		pool: &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "pool"}},
		real: map[string]*corev1.Pod{}, seen: map[string]*corev1.Pod{}, waiting: map[string]bool{},
	}
	b.pool.Spec.Replicas = int32(b.rng.IntN(4)) //nolint:gosec // small
	if b.rng.IntN(3) == 0 {
		b.pool.Spec.MaxPods = int32(1 + b.rng.IntN(30)) //nolint:gosec // small
	}
	for i := range b.gateways {
		b.gateways[i].queue = map[string]bool{}
	}
	return b
}

func (b *bursts) often(percent int) bool { return b.rng.IntN(100) < percent }

// write changes a pod in the API; the watch shows it later.
func (b *bursts) write(pod *corev1.Pod, own bool) {
	b.real[pod.Name] = pod
	b.events = append(b.events, podEvent{pod: pod, own: own})
	if own {
		b.own++
	}
}

func (b *bursts) vanish(pod *corev1.Pod, own bool) {
	delete(b.real, pod.Name)
	b.events = append(b.events, podEvent{pod: pod, gone: true, own: own})
	if own {
		b.own++
	}
}

// show has the watch show the next event, as podHandler takes it in.
func (b *bursts) show() {
	e := b.events[0]
	b.events = b.events[1:]
	if e.own {
		b.own--
	}
	if e.gone {
		delete(b.seen, e.pod.Name)
		b.claims.gone(key, e.pod.Name, b.at)
		return
	}
	b.claims.observe(key, e.pod, b.at)
	b.seen[e.pod.Name] = e.pod
}

// heard is what the answers of the gateways say, as controlplane.Demands puts them
// together.
func (b *bursts) heard() (ids map[uint64]time.Time, known bool) {
	ids, known = map[uint64]time.Time{}, true
	for _, g := range b.gateways {
		fresh := !g.asked.IsZero() && b.at.Sub(g.asked) <= 5*time.Second
		if !fresh || g.missed {
			known = false
		}
		for _, id := range g.said {
			if h := schedule.HashID(id); fresh && g.asked.After(ids[h]) {
				ids[h] = g.asked
			}
		}
	}
	return ids, known
}

// decide is one Reconcile, as far as it scales.
func (b *bursts) decide() {
	if b.own > 0 {
		return // the expectations are not met
	}
	var pods []openPod
	for _, p := range b.seen {
		pods = append(pods, openPod{pod: p})
	}
	ids, known := b.heard()
	a := asked{waiting: b.claims.without(key, ids), known: known}
	c := countPods(pods, nil, "h", b.pool, nil, b.at)
	l := limitsOf(b.pool, troubles{proven: 1000}, a)
	s := decideScale(c, l)
	if s.remove > 0 && !known && (l.maxPods == 0 || c.total <= l.maxPods) {
		b.t.Fatalf("%d pods go though demand is not known", s.remove)
	}
	if s.create > 0 && s.remove > 0 {
		b.t.Fatalf("%+v", s)
	}
	for i, pod := range c.victims(s.remove) {
		if c.ordered[pod] && i < len(c.spare)-len(c.ordered) {
			b.t.Fatal("what was ordered goes before what was not")
		}
		if c.ordered[pod] && (l.maxPods == 0 || c.total <= l.maxPods) {
			b.t.Fatal("what was ordered goes")
		}
		if now := b.real[pod.Name]; now != nil && v1alpha1.PhaseOf(now) == v1alpha1.PhaseOf(pod) { // else the delete fails
			b.removed++
			b.vanish(pod, true)
		}
	}
	for i := range s.create {
		b.made++
		pod := newTestPod(v1alpha1.PodWarming).pod
		pod.Name = fmt.Sprintf("p-%d", b.made)
		pod.UID, pod.CreationTimestamp = types.UID(pod.Name), metav1.NewTime(b.at)
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(b.pool, v1alpha1.GroupVersion.WithKind("SandboxPool"))}
		if i < s.ordered {
			pod.Annotations[v1alpha1.AnnotationOrdered] = "true"
		}
		b.write(pod, true)
	}
}

func (b *bursts) step(ask, leave, end, silent int) {
	b.at = b.at.Add(100 * time.Millisecond)
	for len(b.events) > 0 && b.often(60) {
		b.show()
	}
	for b.often(ask) {
		id := fmt.Sprintf("s-%d", b.came)
		b.came++
		b.waiting[id] = true
		for i := range b.gateways {
			if i == b.came%3 || b.often(20) {
				b.gateways[i].queue[id] = true
			}
		}
	}
	for i := range b.gateways {
		g := &b.gateways[i]
		for id := range g.queue {
			switch {
			case !b.waiting[id] && b.often(30): // it hears that the sandbox has a pod, or ended
				delete(g.queue, id)
			case b.waiting[id] && b.often(leave):
				delete(b.waiting, id)
				delete(g.queue, id)
			case b.waiting[id]:
				b.claim(g.queue, id)
			}
		}
		if b.often(10) { // a poll
			if g.silent = b.often(silent); g.silent {
				g.missed = true
				continue
			}
			g.asked, g.missed, g.said = b.at.Add(-20*time.Millisecond), false, nil
			for id := range g.queue {
				g.said = append(g.said, id)
			}
		}
	}
	for _, pod := range b.real {
		switch v1alpha1.PhaseOf(pod) {
		case v1alpha1.PodWarming:
			if b.often(10) {
				next := pod.DeepCopy()
				next.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodIdle)
				next.Annotations[v1alpha1.AnnotationIdleSince] = b.at.Format(time.RFC3339Nano)
				b.write(next, false)
			}
		case v1alpha1.PodRunning:
			// A gateway that has not noticed the claim would have the sandbox wait anew.
			id, noticed := pod.Labels[v1alpha1.LabelSandboxID], true
			for _, g := range b.gateways {
				noticed = noticed && !g.queue[id]
			}
			if noticed && b.often(end) {
				b.vanish(pod, false)
			}
		}
	}
	if b.often(50) {
		b.decide()
	}
	if most := int(b.pool.Spec.MaxPods); most > 0 && len(b.real) > most {
		b.t.Fatalf("%d pods, maxPods is %d", len(b.real), most)
	}
}

// claim gives the sandbox an idle pod, if there is one.
func (b *bursts) claim(queue map[string]bool, id string) {
	for _, pod := range b.real {
		if v1alpha1.PhaseOf(pod) != v1alpha1.PodIdle {
			continue
		}
		next := pod.DeepCopy()
		next.Labels[v1alpha1.LabelPhase], next.Labels[v1alpha1.LabelSandboxID] = string(v1alpha1.PodRunning), id
		next.Annotations[v1alpha1.AnnotationClaim] = "c-" + id
		b.write(next, false)
		delete(b.waiting, id)
		delete(queue, id)
		return
	}
}

// However gateways and the watch lag: W sandboxes that wait on an empty pool make at
// most W pods and the replicas, nothing goes while demand is unknown, maxPods holds,
// what was ordered stays; and with room all are served. With SANDLANE_MODEL=full, as in
// `make test-all`, it is a million steps.
func TestOrdersOfBursts(t *testing.T) {
	worlds := 60
	if os.Getenv("SANDLANE_MODEL") == "full" {
		worlds = 800 // of 1,300 steps at least
	}
	for seed := range uint64(worlds) {
		b := newBursts(t, seed)
		ask, leave, end, silent := b.rng.IntN(60), b.rng.IntN(2), b.rng.IntN(20), []int{0, 0, 20}[b.rng.IntN(3)]
		for range 100 { // ten seconds
			b.step(ask, leave, end, silent)
		}
		for range 300 {
			b.step(0, 0, 0, 0)
		}
		if most := b.came + int(b.pool.Spec.Replicas); b.made > most+b.removed {
			t.Fatalf("seed %d: %d pods made for %d that waited and %d replicas (%d were removed)", seed, b.made, b.came, b.pool.Spec.Replicas, b.removed)
		}
		// The watch shows 15 events a second: after a large burst it is behind by minutes.
		for behind := 3000; b.pool.Spec.MaxPods == 0 && len(b.waiting) > 0; behind-- {
			if behind == 0 {
				t.Fatalf("seed %d: %d wait for ever", seed, len(b.waiting))
			}
			b.step(0, 0, 0, 0)
		}
		for range 900 { // a minute and a half
			b.step(0, 0, 0, 0)
		}
		idle := 0
		for _, pod := range b.real {
			if v1alpha1.PhaseOf(pod) == v1alpha1.PodIdle {
				idle++
			}
		}
		if b.pool.Spec.MaxPods == 0 && idle != int(b.pool.Spec.Replicas) {
			t.Fatalf("seed %d: %d idle pods are left, want %d", seed, idle, b.pool.Spec.Replicas)
		}
	}
}
