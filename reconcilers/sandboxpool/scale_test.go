package sandboxpool

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/podstate"
)

func TestDecideScale(t *testing.T) {
	const plenty = 100 // proven pods: the template is trusted
	for _, tt := range []struct {
		name   string
		counts counts
		limits limits
		want   scaling
	}{
		{name: "empty", counts: counts{proven: plenty}, limits: limits{replicas: 3}, want: scaling{create: 3}},
		{name: "empty, nothing known of the template", limits: limits{replicas: 100}, want: scaling{create: 1, short: true}},
		{name: "the first is warming", counts: counts{warming: 1, total: 1}, limits: limits{replicas: 100}, want: scaling{short: true}},
		{name: "the first was Ready", counts: counts{idle: 1, proven: 1, total: 1}, limits: limits{replicas: 100}, want: scaling{create: 2, short: true}},
		{name: "three were Ready, one is claimed", counts: counts{idle: 2, running: 1, proven: 3, warming: 1, total: 4}, limits: limits{replicas: 100}, want: scaling{create: 5, short: true}},
		{name: "warming ones count", counts: counts{warming: 2, idle: 1, proven: plenty, total: 3}, limits: limits{replicas: 3}},
		{name: "claimed ones do not", counts: counts{idle: 1, running: 5, proven: plenty, total: 6}, limits: limits{replicas: 3}, want: scaling{create: 2}},
		{name: "none, but the template is known", limits: limits{replicas: 100, proven: 30}, want: scaling{create: 60, short: true}},
		{name: "too many", counts: counts{idle: 5, proven: plenty, total: 5}, limits: limits{replicas: 3}, want: scaling{remove: 2}},
		{name: "down to none", counts: counts{warming: 1, idle: 2, running: 4, total: 7}, want: scaling{remove: 3}},
		{name: "maxPods", counts: counts{idle: 1, running: 3, proven: plenty, total: 4}, limits: limits{replicas: 3, maxPods: 5}, want: scaling{create: 1, full: true}},
		{name: "maxPods reached", counts: counts{running: 5, proven: plenty, total: 5}, limits: limits{replicas: 3, maxPods: 5}, want: scaling{full: true}},
		{name: "maxPods, all served", counts: counts{idle: 3, running: 2, proven: plenty, total: 5}, limits: limits{replicas: 3, maxPods: 5}},
		{name: "pods that are going fill maxPods", counts: counts{running: 3, deleting: 2, total: 5}, limits: limits{replicas: 3, maxPods: 5}, want: scaling{full: true}},
		{name: "maxPods lowered", counts: counts{idle: 3, running: 3, total: 6}, limits: limits{replicas: 3, maxPods: 4}, want: scaling{remove: 2, full: true}},
		{name: "maxPods lowered, some going", counts: counts{idle: 1, running: 3, deleting: 2, total: 6}, limits: limits{replicas: 3, maxPods: 4}, want: scaling{full: true}},
		{name: "maxPods below what is claimed", counts: counts{idle: 1, running: 9, total: 10}, limits: limits{replicas: 1, maxPods: 4}, want: scaling{remove: 1, full: true}},
		{name: "maxPods lowered below the claimed, nothing to remove", counts: counts{running: 9, total: 9}, limits: limits{replicas: 1, maxPods: 4}, want: scaling{full: true}},
		{name: "pods do not start, one at a time", counts: counts{proven: plenty}, limits: limits{replicas: 10, probing: true}, want: scaling{create: 1, short: true}},
		{name: "pods do not start, one is tried", counts: counts{warming: 1, proven: plenty, total: 1}, limits: limits{replicas: 10, probing: true}, want: scaling{short: true}},
		{name: "refused before", counts: counts{warming: 1, proven: plenty, total: 1}, limits: limits{replicas: 10, window: 4}, want: scaling{create: 4, short: true}},
		{name: "refused before, little is missing", counts: counts{warming: 1, proven: plenty, total: 1}, limits: limits{replicas: 3, window: 4}, want: scaling{create: 2}},
		{name: "new template: one in addition first", counts: counts{idle: 12, outdated: 12, total: 12}, limits: limits{replicas: 12}, want: scaling{create: 1}},
		{name: "new template: it is warming", counts: counts{idle: 12, warming: 1, outdated: 12, total: 13}, limits: limits{replicas: 12}},
		{name: "new template: it is Ready", counts: counts{idle: 13, outdated: 12, proven: 1, total: 13}, limits: limits{replicas: 12}, want: scaling{remove: 1}},
		{name: "new template: a quarter at a time", counts: counts{idle: 12, outdated: 11, proven: 1, total: 12}, limits: limits{replicas: 12}, want: scaling{replace: 3}},
		{name: "new template: a quarter is missing", counts: counts{idle: 9, warming: 3, outdated: 8, proven: 1, total: 12}, limits: limits{replicas: 12}},
		{name: "new template: unready old ones", counts: counts{idle: 12, unavailableIdle: 4, unavailableOutdated: 4, outdated: 11, proven: 1, total: 12}, limits: limits{replicas: 12}, want: scaling{replace: 4}},
		{name: "new template: last ones", counts: counts{idle: 12, outdated: 1, proven: 11, total: 12}, limits: limits{replicas: 12}, want: scaling{replace: 1}},
		{name: "new template: the only pod", counts: counts{idle: 1, outdated: 1, total: 1}, limits: limits{replicas: 1}, want: scaling{create: 1}},
		{name: "new template: the only pod, and the new one was claimed", counts: counts{idle: 1, outdated: 1, running: 1, proven: 1, total: 2}, limits: limits{replicas: 1}, want: scaling{create: 1}},
		{name: "new template: the only pod, and the new one", counts: counts{idle: 2, outdated: 1, proven: 1, total: 2}, limits: limits{replicas: 1}, want: scaling{replace: 1}},
		{name: "new template, no room", counts: counts{idle: 4, outdated: 4, total: 4}, limits: limits{replicas: 4, maxPods: 4}, want: scaling{replace: 1}},
		{name: "new template, no room, one is warming", counts: counts{idle: 3, warming: 1, outdated: 3, total: 4}, limits: limits{replicas: 4, maxPods: 4}},
		{name: "new template, no room, the last available one", counts: counts{idle: 1, outdated: 1, running: 3, total: 4}, limits: limits{replicas: 4, maxPods: 4}, want: scaling{full: true}},
		{name: "new template, one pod at all", counts: counts{idle: 1, outdated: 1, total: 1}, limits: limits{replicas: 1, maxPods: 1}, want: scaling{replace: 1}},
		{name: "new template, none wanted", counts: counts{idle: 2, outdated: 2, total: 2}, want: scaling{remove: 2}},
		{name: "one waits for its address", counts: counts{idle: 2, waiting: waiting(1), proven: plenty, total: 3}, limits: limits{replicas: 3}, want: scaling{create: 1}},
		{name: "some wait, all replaced", counts: counts{idle: 3, waiting: waiting(3), proven: plenty, total: 6}, limits: limits{replicas: 3}},
		{name: "more wait than a small pool may have", counts: counts{idle: 3, waiting: waiting(22), proven: plenty, total: 25}, limits: limits{replicas: 3}, want: scaling{deleteWaiting: 2}},
		{name: "more wait than a large pool has replicas", counts: counts{idle: 30, waiting: waiting(33), proven: plenty, total: 63}, limits: limits{replicas: 30}, want: scaling{deleteWaiting: 3}},
		{name: "down to none, some wait", counts: counts{idle: 1, waiting: waiting(2), proven: plenty, total: 3}, want: scaling{remove: 1, deleteWaiting: 2}},
		{name: "those that wait fill maxPods", counts: counts{idle: 1, running: 2, waiting: waiting(2), proven: plenty, total: 5}, limits: limits{replicas: 3, maxPods: 5}, want: scaling{full: true, deleteWaiting: 2}},
		{name: "those that wait leave some room", counts: counts{running: 2, waiting: waiting(2), proven: plenty, total: 4}, limits: limits{replicas: 2, maxPods: 5}, want: scaling{create: 1, full: true, deleteWaiting: 1}},
		{name: "maxPods lowered, some wait", counts: counts{idle: 2, running: 2, waiting: waiting(2), proven: plenty, total: 6}, limits: limits{replicas: 2, maxPods: 4}, want: scaling{deleteWaiting: 2}},
		{name: "maxPods lowered below the stock, some wait", counts: counts{idle: 2, running: 2, waiting: waiting(1), proven: plenty, total: 5}, limits: limits{replicas: 2, maxPods: 3}, want: scaling{remove: 1, deleteWaiting: 1, full: true}},
		{name: "from nothing, for those that wait", counts: counts{proven: plenty}, limits: limits{waiting: 7}, want: scaling{create: 7, ordered: 7}},
		{name: "the stock besides", counts: counts{proven: plenty}, limits: limits{replicas: 3, waiting: 7}, want: scaling{create: 10, ordered: 7}},
		{name: "the stock is there, and their turn has not come", counts: counts{idle: 3, proven: plenty, total: 3}, limits: limits{replicas: 3, waiting: 7}, want: scaling{create: 7, ordered: 7}},
		{name: "ordered already", counts: counts{warming: 10, proven: plenty, total: 10}, limits: limits{replicas: 3, waiting: 7}},
		{name: "some have landed", counts: counts{warming: 5, idle: 1, running: 4, proven: plenty, total: 10}, limits: limits{replicas: 3, waiting: 3}},
		{name: "for those that wait, a template that is not known", limits: limits{waiting: 7}, want: scaling{create: 1, ordered: 1, short: true}},
		{name: "the stock comes first", counts: counts{idle: 0, proven: 1}, limits: limits{replicas: 1, waiting: 7}, want: scaling{create: 2, ordered: 1, short: true}},
		{name: "a hundred without maxPods", counts: counts{proven: plenty}, limits: limits{waiting: 500}, want: scaling{create: 100, ordered: 100}},
		{name: "a hundred with the stock", counts: counts{idle: 40, proven: plenty, total: 40}, limits: limits{replicas: 40, waiting: 500}, want: scaling{create: 60, ordered: 60}},
		{name: "more are asked for by replicas", counts: counts{proven: plenty}, limits: limits{replicas: 150, waiting: 500}, want: scaling{create: 150}},
		{name: "maxPods holds for them", counts: counts{running: 6, proven: plenty, total: 6}, limits: limits{replicas: 1, waiting: 9, maxPods: 10}, want: scaling{create: 4, ordered: 3, full: true}},
		{name: "maxPods allows more than a hundred", counts: counts{proven: plenty}, limits: limits{waiting: 150, maxPods: 1000}, want: scaling{create: 150, ordered: 150}},
		{name: "they have left: what was ordered stays", counts: counts{warming: 3, idle: 4, ordered: ordered(7), total: 7}},
		{name: "they have left: the rest goes", counts: counts{warming: 3, idle: 4, ordered: ordered(5), total: 7}, want: scaling{remove: 2}},
		{name: "they have left: the stock is part of what was ordered", counts: counts{idle: 7, ordered: ordered(4), total: 7}, limits: limits{replicas: 2}, want: scaling{remove: 3}},
		{name: "not known who waits: nothing goes", counts: counts{idle: 5, total: 5}, limits: limits{replicas: 3, unknown: true}, want: scaling{held: true}},
		{name: "not known: down to none", counts: counts{idle: 2, waiting: waiting(1), total: 3}, limits: limits{unknown: true}, want: scaling{held: true}},
		{name: "not known: none, and one waits for its address", counts: counts{waiting: waiting(1), total: 1}, limits: limits{unknown: true}},
		{name: "not known: what is heard of is made", counts: counts{idle: 1, proven: plenty, total: 1}, limits: limits{replicas: 1, waiting: 2, unknown: true}, want: scaling{create: 2, ordered: 2}},
		{name: "not known: maxPods holds, and no more than that goes", counts: counts{idle: 5, total: 5}, limits: limits{replicas: 1, maxPods: 4, unknown: true}, want: scaling{remove: 1, full: true}},
		{name: "not known: a rollout goes on", counts: counts{idle: 13, outdated: 12, proven: 1, total: 13}, limits: limits{replicas: 12, unknown: true}, want: scaling{replace: 4, held: true}},
		{name: "maxPods lowered: those that wait keep theirs", counts: counts{idle: 6, total: 6}, limits: limits{replicas: 1, waiting: 3, maxPods: 5}, want: scaling{remove: 2, full: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decideScale(tt.counts, tt.limits); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func waiting(n int) []*corev1.Pod { return make([]*corev1.Pod, n) }

func ordered(n int) map[*corev1.Pod]bool {
	all := map[*corev1.Pod]bool{}
	for range n {
		all[&corev1.Pod{}] = true
	}
	return all
}

func TestDecideRetire(t *testing.T) {
	marked := func(until time.Duration) func(*view) {
		return func(v *view) {
			v.pod.Annotations[v1alpha1.AnnotationScaleDownProtected] = now.Add(until).Format(time.RFC3339Nano)
		}
	}
	for _, tt := range []struct {
		name string
		view view
		want retiring
		wait time.Duration
	}{
		{"warming", newTestPod(v1alpha1.PodWarming), retireDelete, 0},
		{"idle", newTestPod(v1alpha1.PodIdle), retireMark, protectedFor},
		{"protected", newTestPod(v1alpha1.PodIdle, marked(time.Second)), retireWait, time.Second},
		{"no longer protected", newTestPod(v1alpha1.PodIdle, marked(0)), retireDelete, 0},
		{"marked by a clock ahead of ours", newTestPod(v1alpha1.PodIdle, marked(time.Hour)), retireMark, protectedFor},
	} {
		if what, wait := decideRetire(tt.view.pod, protectedFor, now); what != tt.want || wait != tt.wait {
			t.Errorf("%s: %v, wait %v", tt.name, what, wait)
		}
	}
	pool := &v1alpha1.SandboxPool{}
	if got := protectionOf(pool); got != protectedFor {
		t.Errorf("unset, the protection is %v", got)
	}
	pool.Spec.ScaleDownProtection = &metav1.Duration{Duration: time.Minute}
	if what, wait := decideRetire(newTestPod(v1alpha1.PodIdle).pod, protectionOf(pool), now); what != retireMark || wait != time.Minute {
		t.Errorf("a minute's: %v, wait %v", what, wait)
	}
	pool.Spec.ScaleDownProtection.Duration = 0
	if what, _ := decideRetire(newTestPod(v1alpha1.PodIdle).pod, protectionOf(pool), now); what != retireDelete {
		t.Errorf("none: %v", what)
	}
}

func TestCensusNeverSparesAClaimedPod(t *testing.T) {
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "pool"}}
	var pods []openPod
	add := func(name string, phase v1alpha1.PodPhase, change ...func(*view)) {
		v := newTestPod(phase, change...)
		v.pod.Name, v.pod.UID = name, types.UID(name)
		v.pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("SandboxPool"))}
		pods = append(pods, openPod{pod: v.pod})
	}
	idleFor := func(d time.Duration) func(*view) {
		return func(v *view) { v.pod.Annotations[v1alpha1.AnnotationIdleSince] = now.Add(-d).Format(time.RFC3339Nano) }
	}
	add("idle-new", v1alpha1.PodIdle, idleFor(time.Minute), func(v *view) { v.pod.CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Hour)) })
	add("idle-old", v1alpha1.PodIdle, idleFor(time.Hour))
	add("idle-unready", v1alpha1.PodIdle, unready)
	add("idle-outdated", v1alpha1.PodIdle, func(v *view) { v.pod.Annotations[v1alpha1.AnnotationTemplateHash] = "old" })
	add("warming", v1alpha1.PodWarming)
	add("waiting-new", v1alpha1.PodWarming)
	add("waiting-old", v1alpha1.PodWarming, func(v *view) { v.pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour)) })
	add("going", v1alpha1.PodIdle, deleting)
	add("lost", v1alpha1.PodIdle, func(v *view) { at := metav1.NewTime(now.Add(-2 * goneFor)); v.pod.DeletionTimestamp = &at })
	for _, phase := range []v1alpha1.PodPhase{v1alpha1.PodStarting, v1alpha1.PodRunning, v1alpha1.PodStopping, v1alpha1.PodFailed} {
		add(string(phase), phase)
	}
	stranger := newTestPod(v1alpha1.PodIdle)
	pods = append(pods, openPod{pod: stranger.pod}) // of an earlier pool of this name
	c := countPods(pods, map[string]int{"h": 20, "old": 10}, "h", pool, map[types.UID]bool{"waiting-new": true, "waiting-old": true}, now)
	var order []string
	for _, p := range c.spare {
		order = append(order, p.Name)
	}
	want := []string{"warming", "idle-outdated", "idle-unready", "idle-old", "idle-new"}
	if len(order) != len(want) {
		t.Fatalf("spare %v, want %v", order, want)
	}
	for i := range want {
		if order[i] != want[i] {
			t.Errorf("spare %v, want %v", order, want)
			break
		}
	}
	if len(c.waiting) != 2 || c.waiting[0].Name != "waiting-old" {
		t.Errorf("waiting %v", c.waiting)
	}
	if c.total != 43 || c.deleting != 1 || c.idle != 4 || c.unavailableIdle != 1 || c.outdated != 1 || c.warming != 1 ||
		c.proven != 27 || c.starting != 1 || c.running != 31 || c.stopping != 1 || c.failed != 1 {
		t.Errorf("%+v", c)
	}
}

func TestPhaseOrder(t *testing.T) {
	pool := &v1alpha1.SandboxPool{Spec: v1alpha1.SandboxPoolSpec{Replicas: 2}}
	for _, tt := range []struct {
		name string
		c    counts
		out  outcome
		want v1alpha1.PoolPhase
	}{
		{"nothing yet", counts{warming: 2}, outcome{}, v1alpha1.PoolPending},
		{"some", counts{idle: 1, warming: 1}, outcome{}, v1alpha1.PoolScalingUp},
		{"some, in trouble", counts{idle: 1}, outcome{trouble: &trouble{}}, v1alpha1.PoolScalingUp},
		{"too many", counts{idle: 3}, outcome{scaling: scaling{remove: 1}}, v1alpha1.PoolScalingDown},
		{"unready", counts{idle: 2, unavailableIdle: 1}, outcome{}, v1alpha1.PoolDegraded},
		{"one cannot start", counts{idle: 2, warming: 1, stuck: &podstate.PodStatusDetail{}}, outcome{}, v1alpha1.PoolDegraded},
		{"full", counts{running: 2}, outcome{scaling: scaling{full: true}}, v1alpha1.PoolReady},
		{"all", counts{idle: 2}, outcome{}, v1alpha1.PoolReady},
	} {
		if got := phase(pool, tt.c, tt.out); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	at := metav1.NewTime(now)
	pool.DeletionTimestamp = &at
	if got := phase(pool, counts{}, outcome{}); got != v1alpha1.PoolTerminating {
		t.Errorf("being deleted: %s", got)
	}
}

// The conditions name the bound that binds, and only a pool without unclaimed pods is at it.
func TestBoundOfATenant(t *testing.T) {
	pool := &v1alpha1.SandboxPool{Spec: v1alpha1.SandboxPoolSpec{Replicas: 9, MaxPods: 5}}
	quota, full := &trouble{reason: v1alpha1.PoolReasonQuota, message: "exceeded quota"}, scaling{full: true}
	short := scaling{full: true, create: 1} // maxPods has room for less than is wanted, and has some
	for _, tt := range []struct {
		name               string
		c                  counts
		out                outcome
		available, scaling string
		bound              bool
	}{
		{"maxPods", counts{running: 4, starting: 1}, outcome{scaling: full}, "MaxPods", "MaxPods", true},
		{"a quota below maxPods", counts{running: 3}, outcome{scaling: short, trouble: quota}, "QuotaExceeded", "QuotaExceeded", true},
		{"a quota that others use up", counts{}, outcome{scaling: short, trouble: quota}, "QuotaExceeded", "QuotaExceeded", true},
		{"maxPods, and pods that do not get ready", counts{running: 3, warming: 2}, outcome{scaling: full}, "MaxPods", "ScalingUp", false},
		{"a quota, and pods that do not get ready", counts{running: 1, warming: 2}, outcome{trouble: quota}, "QuotaExceeded", "ScalingUp", false},
		{"pods that do not go fill maxPods", counts{stopping: 3, deleting: 2}, outcome{scaling: full}, "MaxPods", "MaxPods", false},
		{"refused otherwise", counts{running: 3}, outcome{scaling: scaling{create: 1}, trouble: &trouble{reason: "Forbidden"}}, "NoIdlePod", "ScalingUp", false},
	} {
		tt.out.counts = tt.c
		got := conditions(pool, tt.c, tt.out)
		if got[0].Reason != tt.available || got[1].Reason != tt.scaling {
			t.Errorf("%s: Available by %s, Scaling by %s; want %s and %s", tt.name, got[0].Reason, got[1].Reason, tt.available, tt.scaling)
		}
		if got := tt.out.atBound(); got != tt.bound {
			t.Errorf("%s: at a bound: %v", tt.name, got)
		}
	}
}

func TestExpectations(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(now)
	e := NewPoolExpectations(c)
	p, q := types.NamespacedName{Namespace: "n", Name: "p"}, types.NamespacedName{Namespace: "n", Name: "q"}
	e.CreationObserved(p) // of a pool that expects nothing
	e.ExpectCreations(p, 2)
	e.ExpectDeletions(p, "a")
	e.CreationObserved(p)
	if e.Satisfied(p) || !e.Satisfied(q) {
		t.Error("p waits, q does not")
	}
	e.CreationObserved(p)
	e.DeletionObserved(p, "another")
	if e.Satisfied(p) {
		t.Error("satisfied without the deletion")
	}
	e.DeletionObserved(p, "a")
	if !e.Satisfied(p) {
		t.Error("not satisfied")
	}
	e.CreationObserved(p) // one more than expected must not hide the next
	e.ExpectCreations(p, 1)
	if e.Satisfied(p) {
		t.Error("a stray observation hides an expectation")
	}
	c.SetTime(now.Add(expectationTTL))
	if !e.Satisfied(p) {
		t.Error("not satisfied after the TTL")
	}
	e.ExpectDeletions(p, "b")
	e.DeleteExpectations(p)
	if !e.Satisfied(p) {
		t.Error("not satisfied after it was forgotten")
	}
}

func TestBackoff(t *testing.T) {
	at := now
	b := newCreationBackoff(func() time.Time { return at })
	p := types.NamespacedName{Name: "p"}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		b.refused(p, "h", "Forbidden", "no")
		b.refused(p, "h", "Forbidden", "no, again") // of the same batch
		s := b.state(p, "h")
		if s.worst() == nil || s.worst().message != "no, again" || s.wait != want*time.Second || s.refused.window != 1 {
			t.Errorf("%+v, want a wait of %v", s, want*time.Second)
		}
		at = at.Add(s.wait)
	}
	if s := b.state(p, "another template"); s.worst() != nil {
		t.Errorf("another template inherits %+v", s.worst())
	}
	b.accepted(p, "another template", true)
	b.idle(p, "h")
	if s := b.state(p, "h"); s.refused == nil {
		t.Error("another template's success, or a pod that turned idle, clears the refusal")
	}
	for _, window := range []int{2, 4, 8} {
		b.accepted(p, "h", false)
		if s := b.state(p, "h"); s.refused == nil || s.refused.window != window || s.wait != 0 {
			t.Errorf("after a success: %+v, want a window of %d", s.refused, window)
		}
	}
	b.noteReady(p, "h", 7)
	b.noteReady(p, "h", 3)
	if s := b.state(p, "h"); s.proven != 7 {
		t.Errorf("%d proven pods, want 7", s.proven)
	}
	b.unready(p, "h", "StartupTimeout", "slow")
	if s := b.state(p, "h"); s.proven != 0 {
		t.Errorf("an unready pod leaves %d proven ones", s.proven)
	}
	b.accepted(p, "h", true)
	if s := b.state(p, "h"); s.refused != nil || s.worst() == nil || s.worst().reason != "StartupTimeout" {
		t.Errorf("after all was made: %+v", s)
	}
	b.idle(p, "h")
	if s := b.state(p, "h"); s.worst() != nil || s.wait != 0 {
		t.Errorf("after a pod turned idle: %+v", s)
	}
}
