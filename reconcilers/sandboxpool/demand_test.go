package sandboxpool

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
)

// demanded is a Demand that says what it is told to.
type demanded struct {
	ids     map[uint64]time.Time
	unknown bool
	soon    int
}

func (d *demanded) Waiting(types.NamespacedName) (map[uint64]time.Time, bool) {
	return d.ids, !d.unknown
}
func (d *demanded) Soon() { d.soon++ }

// set says that sandboxes s-0, s-1, … wait, by a poll of that time.
func (d *demanded) set(n int, asked time.Time) {
	d.ids = map[uint64]time.Time{}
	for i := range n {
		d.ids[schedule.HashID(fmt.Sprintf("s-%d", i))] = asked
	}
}

// claimAsS claims an idle pod of the API for sandbox s-i.
func (l *lagging) claimAsS(i int) {
	l.t.Helper()
	var pods corev1.PodList
	if err := l.real.List(l.t.Context(), &pods); err != nil {
		l.t.Fatal(err)
	}
	for _, p := range pods.Items {
		if v1alpha1.PhaseOf(&p) == v1alpha1.PodIdle {
			p.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodRunning)
			p.Labels[v1alpha1.LabelSandboxID] = fmt.Sprintf("s-%d", i)
			p.Annotations[v1alpha1.AnnotationClaim] = fmt.Sprintf("c-%d", i)
			if err := l.real.Update(l.t.Context(), &p); err != nil {
				l.t.Fatal(err)
			}
			return
		}
	}
	l.t.Fatal("no idle pod")
}

// warm turns the warming pods that the API has idle, and lets the cache show it.
func (l *lagging) warm() {
	l.t.Helper()
	var pods corev1.PodList
	if err := l.real.List(l.t.Context(), &pods); err != nil {
		l.t.Fatal(err)
	}
	for _, p := range pods.Items {
		if v1alpha1.PhaseOf(&p) == v1alpha1.PodWarming && p.DeletionTimestamp == nil {
			p.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodIdle)
			p.Annotations[v1alpha1.AnnotationIdleSince] = l.clock.Now().Format(time.RFC3339Nano)
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			if err := l.real.Update(l.t.Context(), &p); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	l.catchUp()
}

// passTime lets time go by.
func (l *lagging) passTime(d time.Duration) { l.clock.SetTime(l.clock.Now().Add(d)) }

// A pool without replicas makes a pod for each claim that waits, once, although the
// gateways' answers still count claims that have landed.
func TestPoolServesFromZero(t *testing.T) {
	const n = 5
	l, d := newLagging(t, 0), &demanded{}
	l.Demand, l.Metrics = d, NewMetrics(nil)
	l.reconcile(2)
	if l.creates != 0 {
		t.Fatalf("%d pods for nobody", l.creates)
	}
	d.set(n, l.clock.Now())
	for i := range n {
		for range 4 { // a new template makes one pod at a time
			l.reconcile(2)
			l.catchUp()
		}
		l.warm()
		l.reconcile(1)
		if got := l.pool().Status.WaitingClaims; int(got) != n-i {
			t.Errorf("status says that %d wait, want %d", got, n-i)
		}
		metrics := l.Metrics.of(key)
		if wanted, waiting := testutil.ToFloat64(metrics.wanted), testutil.ToFloat64(metrics.waiting); int(wanted) != n-i || int(waiting) != n-i {
			t.Errorf("the metrics say %v wanted and %v waiting, want %d", wanted, waiting, n-i)
		}
		l.passTime(time.Second)
		l.claimAsS(i) // d still says that it waits
		l.catchUp()
	}
	l.reconcile(3)
	if l.creates != n {
		t.Errorf("%d pods made for %d that waited", l.creates, n)
	}
	if got := l.pool().Status.WaitingClaims; got != 0 {
		t.Errorf("status says that %d wait", got)
	}
	// One that waits anew, after its pod has stopped, gets another; not by the old poll.
	var pods corev1.PodList
	if err := l.real.List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.Labels[v1alpha1.LabelSandboxID] == "s-0" {
			p.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodStopping)
			if err := l.real.Update(t.Context(), &p); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.catchUp()
	l.reconcile(2)
	if l.creates != n {
		t.Errorf("%d pods made by a poll from before the claim", l.creates)
	}
	d.set(1, l.clock.Now().Add(time.Second))
	l.reconcile(2)
	if l.creates != n+1 {
		t.Errorf("%d pods made, want one more for the one that waits anew", l.creates)
	}
}

// While a gateway is silent a pool does not shrink, also for a new leader; it looks
// again soon.
func TestNothingShrinksWhileDemandIsUnknown(t *testing.T) {
	l, d := newLagging(t, 3), &demanded{unknown: true}
	l.Demand = d
	for range 4 {
		l.reconcile(2)
		l.warm()
	}
	if l.creates != 3 {
		t.Fatalf("%d pods made, want 3: a stock is kept whoever is silent", l.creates)
	}
	l.scaleTo(0)
	l.reconcile(3)
	l.passTime(time.Hour)
	l.reconcile(3)
	l.catchUp()
	for _, p := range l.cache {
		if _, marked := p.Annotations[v1alpha1.AnnotationScaleDownProtected]; marked {
			t.Errorf("pod %s is marked", p.Name)
		}
	}
	if l.deletes != 0 {
		t.Fatalf("%d deletes while demand is unknown", l.deletes)
	}
	if got := l.pool().Status.Phase; got == v1alpha1.PoolScalingDown {
		t.Errorf("the pool says %s", got)
	}
	d.unknown = false
	l.reconcile(1)
	l.catchUp()
	l.passTime(protectedFor)
	l.reconcile(1)
	if l.deletes != 3 {
		t.Errorf("%d deletes once it is known that none waits, want 3", l.deletes)
	}
}

// What was ordered for a claim stays until it is Ready and then idle for a minute, also
// when the claim has left; the stock that was there goes before it.
func TestOrderedPodsStay(t *testing.T) {
	l, d := newLagging(t, 1), &demanded{}
	l.Demand = d
	l.reconcile(1)
	l.warm()
	stock := l.cache[0].Name
	d.set(2, l.clock.Now())
	l.reconcile(1)
	d.set(0, l.clock.Now()) // they leave while their pods warm
	l.scaleTo(0)
	l.catchUp()
	look := func() {
		l.reconcile(1)
		l.catchUp()
		l.passTime(protectedFor)
		l.reconcile(1)
		l.catchUp()
	}
	look()
	if l.creates != 3 || l.deletes != 1 {
		t.Fatalf("%d pods made, %d deleted; want 3 and 1", l.creates, l.deletes)
	}
	for _, p := range l.cache {
		if going := p.DeletionTimestamp != nil; going != (p.Name == stock) || !going && p.Annotations[v1alpha1.AnnotationOrdered] == "" {
			t.Errorf("pod %s: being deleted is %v", p.Name, going)
		}
	}
	l.warm()
	l.passTime(orderedStays - 2*protectedFor)
	look()
	if l.deletes != 1 {
		t.Fatalf("%d deleted that were idle for less than a minute", l.deletes-1)
	}
	l.passTime(2 * protectedFor)
	look()
	if l.deletes != 3 {
		t.Errorf("%d deleted after a minute, want both", l.deletes-1)
	}
}

// A pool that drains keeps none of what was ordered, known or not what waits: no claim goes
// there.
func TestDrainingPoolKeepsNoOrderedPods(t *testing.T) {
	l, d := newLagging(t, 0), &demanded{}
	l.Demand = d
	d.set(2, l.clock.Now())
	l.reconcile(1)
	l.warm()
	l.catchUp()
	l.passTime(protectedFor)
	d.unknown = true
	l.reconcile(1)
	if l.creates != 2 || l.deletes != 0 {
		t.Fatalf("%d pods made, %d deleted; want 2 and none", l.creates, l.deletes)
	}
	l.catchUp()
	l.change(func(p *v1alpha1.SandboxPool) { p.Annotations = map[string]string{v1alpha1.AnnotationDraining: "2026"} })
	l.reconcile(1)
	l.catchUp()
	l.passTime(protectedFor)
	l.reconcile(1)
	if l.deletes != 2 {
		t.Errorf("%d of two ordered pods deleted once the pool drains", l.deletes)
	}
}

// The note of gateways that claims wait has them asked at once, and goes when none does.
func TestNoteOfWaitingClaims(t *testing.T) {
	l, d := newLagging(t, 0), &demanded{unknown: true}
	l.Demand = d
	note := func(value string) {
		l.change(func(p *v1alpha1.SandboxPool) {
			p.Annotations = map[string]string{v1alpha1.AnnotationScaleUpPending: value, "a": "b"}
		})
	}
	has := func(when string, want bool) {
		t.Helper()
		l.reconcile(1)
		if _, has := l.pool().Annotations[v1alpha1.AnnotationScaleUpPending]; has != want {
			t.Errorf("%s: the note is there: %v", when, has)
		}
	}
	note("1")
	has("new", true)
	has("seen before", true)
	if d.soon != 1 {
		t.Errorf("gateways were asked %d times for one note", d.soon)
	}
	l.passTime(time.Minute)
	has("not known", true)
	d.unknown = false
	d.set(1, l.clock.Now())
	has("one waits", true)
	d.set(0, l.clock.Now())
	has("none waits", false)
	if got := l.pool().Annotations["a"]; got != "b" {
		t.Errorf("the pool's other annotation is %q", got)
	}
	note("2")
	has("a new one, before gateways have answered", true)
	if d.soon != 2 {
		t.Errorf("gateways were asked %d times for two notes", d.soon)
	}
	l.passTime(noteStays)
	has("they have", false)
}

// When a pool was last asked for a sandbox changes every few seconds and means nothing
// to the reconciler.
func TestLastCreateWakesNobody(t *testing.T) {
	wakes := annotationsMoved()
	with := func(annotations map[string]string) client.Object {
		return &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	}
	for name, tt := range map[string]struct {
		before, now map[string]string
		want        bool
	}{
		"the first create": {nil, map[string]string{v1alpha1.AnnotationLastCreate: "1"}, false},
		"another create":   {map[string]string{v1alpha1.AnnotationLastCreate: "1"}, map[string]string{v1alpha1.AnnotationLastCreate: "2"}, false},
		"a note":           {nil, map[string]string{v1alpha1.AnnotationScaleUpPending: "1"}, true},
		"a note and a create": {
			map[string]string{v1alpha1.AnnotationLastCreate: "1"},
			map[string]string{v1alpha1.AnnotationLastCreate: "2", v1alpha1.AnnotationScaleUpPending: "1"}, true,
		},
		"nothing": {map[string]string{"a": "b"}, map[string]string{"a": "b"}, false},
	} {
		if got := wakes.Update(event.UpdateEvent{ObjectOld: with(tt.before), ObjectNew: with(tt.now)}); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestClaimsThatHaveLanded(t *testing.T) {
	var c claims
	id := schedule.HashID("s")
	at := func(d time.Duration) time.Time { return now.Add(d) }
	want := func(when string, asked time.Duration, n int) {
		t.Helper()
		if got := c.without(key, map[uint64]time.Time{id: at(asked)}); got != n {
			t.Errorf("%s: %d without a pod, want %d", when, got, n)
		}
	}
	want("nothing was seen", 0, 1)
	pod := claimedPod(v1alpha1.PodStarting).pod
	c.observe(key, newTestPod(v1alpha1.PodIdle).pod, at(time.Second))
	want("its pod is idle", 2*time.Second, 1)
	c.observe(key, pod, at(3*time.Second))
	want("claimed since", 2*time.Second, 0)
	want("claimed before, and a gateway has not noticed", 4*time.Second, 0)
	c.observe(key, claimedPod(v1alpha1.PodRunning).pod, at(5*time.Second))
	stopping := claimedPod(v1alpha1.PodStopping).pod
	c.observe(key, stopping, at(6*time.Second))
	want("over, by a poll from before the claim", 2*time.Second, 0)
	want("over, by a poll that a gateway answered which had not noticed the claim", 5*time.Second, 0)
	want("over, and it waits anew", 7*time.Second, 1)
	c.observe(key, claimedPod(v1alpha1.PodRunning, deleting).pod, at(8*time.Second))
	want("its pod is being deleted", 9*time.Second, 1)
	for i := range 100 {
		other := pod.DeepCopy()
		other.Name, other.Labels[v1alpha1.LabelSandboxID] = fmt.Sprint(i), fmt.Sprint(i)
		c.observe(key, other, at(time.Duration(10+i)*time.Second))
		c.gone(key, other.Name, at(time.Duration(10+i)*time.Second))
	}
	if p := c.pools[key]; len(p.served) > 30 || len(p.byPod) != 0 || len(p.pods) != 0 {
		t.Errorf("remembers %d ends, %d pods, %d sandboxes", len(p.served), len(p.byPod), len(p.pods))
	}
	c.forget(key)
	if len(c.pools) != 0 {
		t.Error("remembers a pool that is gone")
	}
}
