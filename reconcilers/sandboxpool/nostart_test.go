package sandboxpool

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/podstate"
)

// The condition Available says that no pod can start only while that is known of all of them.
func TestNoPodCanStart(t *testing.T) {
	waits := func(reason string) *podstate.PodStatusDetail {
		return &podstate.PodStatusDetail{Reason: reason, Message: "container main is waiting: " + reason}
	}
	for name, tt := range map[string]struct {
		counts counts
		out    outcome
		want   string
	}{
		"the only pod":                  {counts{warming: 1, cannotStart: 1, stuck: waits("ImagePullBackOff")}, outcome{}, "ErrImagePull"},
		"all pods":                      {counts{warming: 3, cannotStart: 3, stuck: waits("InvalidImageName")}, outcome{}, "InvalidImageName"},
		"one pulls":                     {counts{warming: 2, cannotStart: 1, stuck: waits("ErrImagePull")}, outcome{}, ""},
		"one was Ready":                 {counts{warming: 1, cannotStart: 1, running: 1, proven: 1, stuck: waits("ErrImagePull")}, outcome{}, ""},
		"one is recycled":               {counts{warming: 1, cannotStart: 1, stopping: 1, recycling: 1, stuck: waits("ErrImagePull")}, outcome{}, ""},
		"may be mended by more nodes":   {counts{warming: 1, stuck: waits("Unschedulable")}, outcome{}, ""},
		"the last one, and none is now": {counts{failed: 1}, outcome{trouble: &trouble{reason: "ErrImagePull", message: "pod p"}}, "ErrImagePull"},
		"another one is tried":          {counts{warming: 1}, outcome{trouble: &trouble{reason: "ErrImagePull", message: "pod p"}}, ""},
		"the last one was slow":         {counts{failed: 1}, outcome{trouble: &trouble{reason: podstate.ReasonStartupTimeout}}, ""},
	} {
		pool := &v1alpha1.SandboxPool{Spec: v1alpha1.SandboxPoolSpec{Replicas: 1}}
		fillStatus(pool, tt.counts, tt.out)
		if got := v1alpha1.NoStartOf(pool); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A pool whose first pod pulls its image says how far that is, where the node says it.
func TestPoolThatPulls(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: "pulled 1 of 3 MB of x"},
	}}}}}
	pod.Labels = map[string]string{v1alpha1.LabelPhase: string(v1alpha1.PodWarming)}
	c := counts{}
	c.count(pod, "", false)
	pool := &v1alpha1.SandboxPool{Spec: v1alpha1.SandboxPoolSpec{Replicas: 1}}
	fillStatus(pool, c, outcome{})
	available := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.PoolConditionAvailable)
	if available.Reason != "NoIdlePod" || available.Message != "no pod is idle and Ready: container main: pulled 1 of 3 MB of x" {
		t.Errorf("%+v", available)
	}
}

// A pool whose image does not exist says so while its pod waits, and after that pod was given up;
// not any more when the template is mended.
func TestPoolOfNoImage(t *testing.T) {
	l := newLagging(t, 1)
	if err := l.Ledger.Load(t.Context(), l.real); err != nil {
		t.Fatal(err)
	}
	l.change(func(p *v1alpha1.SandboxPool) { p.Spec.StartupTimeout = &metav1.Duration{Duration: 5 * time.Second} })
	absent := func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such manifest"},
		}}}
	}
	said := func() string { return v1alpha1.NoStartOf(l.pool()) }
	if took := l.pass(time.Minute, absent, func() bool { return said() != "" }); took > 2*time.Second {
		t.Errorf("%q after %v", said(), took)
	}
	warming := func() (n int) {
		for i := range l.cache {
			if v1alpha1.PhaseOf(&l.cache[i]) == v1alpha1.PodWarming && l.cache[i].DeletionTimestamp == nil {
				n++
			}
		}
		return n
	}
	silent := 0 // looks at which a client would have been told nothing
	for range 10 {
		l.pass(3*time.Second, absent, func() bool { return false })
		if said() == "" {
			silent++
		}
	}
	if silent > 2 {
		t.Errorf("nothing was said at %d of 10 looks; %d pods warm; %+v", silent, warming(), meta.FindStatusCondition(l.pool().Status.Conditions, v1alpha1.PoolConditionAvailable))
	}
	l.mendTemplate()
	start := func(p *corev1.Pod) {
		p.Status.Phase, p.Status.PodIP = corev1.PodRunning, fmt.Sprintf("10.0.%s.1", p.UID)
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	}
	l.pass(time.Minute, start, func() bool { return l.idle() == 1 && said() == "" })
	if said() != "" {
		t.Errorf("mended, and %q", said())
	}
}
