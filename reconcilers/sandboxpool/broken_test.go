package sandboxpool

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// pass lets virtual time go by: each fifth of a second the node looks at every pod
// that it has not started, and the reconciler at the pool, if anything has changed
// or it asked to. It ends early when done says so, and returns how long it took.
func (l *lagging) pass(most time.Duration, node func(*corev1.Pod), done func() bool) time.Duration {
	l.t.Helper()
	const tick = 200 * time.Millisecond
	var passed time.Duration
	var next time.Time
	version := ""
	for ; passed < most && !done(); passed += tick {
		if now := l.version(); now != version || !l.clock.Now().Before(next) {
			res, err := l.Reconcile(l.t.Context(), ctrl.Request{NamespacedName: key})
			if err != nil {
				l.t.Fatal(err)
			}
			version, next = now, l.clock.Now().Add(res.RequeueAfter)
		}
		for i := range l.catchUp() {
			p := &l.cache[i]
			if p.DeletionTimestamp != nil || p.Status.Phase != "" {
				continue
			}
			if node(p); p.Status.Phase == "" {
				continue
			}
			if err := l.real.Status().Update(l.t.Context(), p.DeepCopy()); err != nil {
				l.t.Fatal(err)
			}
		}
		l.catchUp()
		l.clock.SetTime(l.clock.Now().Add(tick))
	}
	return passed
}

// version tells apart what the cache shows.
func (l *lagging) version() string {
	var all []string
	for i := range l.cache {
		all = append(all, string(l.cache[i].UID), l.cache[i].ResourceVersion)
	}
	return strings.Join(all, " ")
}

func (l *lagging) idle() (n int) {
	for i := range l.cache {
		if v1alpha1.PhaseOf(&l.cache[i]) == v1alpha1.PodIdle {
			n++
		}
	}
	return n
}

// TestBrokenTemplateCostsAHandful is a pool whose pods do not start, for a
// minute, by a clock of its own. Then what is wrong is mended, in the template or
// outside it, and the pool fills up by itself.
func TestBrokenTemplateCostsAHandful(t *testing.T) {
	const replicas, handful = 20, 8
	crash := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	start := func(p *corev1.Pod) {
		p.Status.Phase, p.Status.PodIP = corev1.PodRunning, fmt.Sprintf("10.0.%s.1", p.UID)
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	}
	for _, tt := range []struct {
		name    string
		node    func(*corev1.Pod)
		startup time.Duration
		mend    func(*lagging)
		within  time.Duration
	}{
		{"crash, template mended", crash, time.Minute, (*lagging).mendTemplate, 5 * time.Second},
		{"crash, mended outside", crash, time.Minute, func(*lagging) {}, backoffMost + 5*time.Second},
		{"never ready, template mended", func(*corev1.Pod) {}, time.Second, (*lagging).mendTemplate, 5 * time.Second},
		{"never ready, mended outside", func(*corev1.Pod) {}, time.Second, func(*lagging) {}, backoffMost + 5*time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLagging(t, replicas)
			if err := l.Ledger.Load(context.Background(), l.real); err != nil {
				t.Fatal(err)
			}
			l.change(func(p *v1alpha1.SandboxPool) { p.Spec.StartupTimeout = &metav1.Duration{Duration: tt.startup} })
			never := func() bool { return false }
			l.pass(time.Minute, tt.node, never)
			if l.creates < 2 || l.creates > handful {
				t.Errorf("%d pods of a broken template in a minute, want 2 to %d", l.creates, handful)
			}
			broken := l.creates
			tt.mend(l)
			took := l.pass(2*time.Minute, start, func() bool { return l.idle() == replicas })
			if took > tt.within {
				t.Errorf("%d of %d pods %v after it was mended, want all within %v", l.idle(), replicas, took, tt.within)
			}
			l.pass(4*time.Second, start, never)
			if made := l.creates - broken; made != replicas || l.idle() != replicas {
				t.Errorf("%d pods made once it was mended, %d idle, want %d", made, l.idle(), replicas)
			}
		})
	}
}

// mendTemplate gives the pool another template.
func (l *lagging) mendTemplate() {
	l.change(func(p *v1alpha1.SandboxPool) { p.Spec.Template.Template.Spec.Containers[0].Image = "mended" })
}

func (l *lagging) change(how func(*v1alpha1.SandboxPool)) {
	l.t.Helper()
	var pool v1alpha1.SandboxPool
	if err := l.real.Get(l.t.Context(), key, &pool); err != nil {
		l.t.Fatal(err)
	}
	how(&pool)
	if err := l.real.Update(l.t.Context(), &pool); err != nil {
		l.t.Fatal(err)
	}
}
