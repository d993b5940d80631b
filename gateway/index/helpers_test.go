package index

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// claimedPod returns a pool pod that runs the claim for the sandbox.
func claimedPod(name, sandbox, claim, addr string, rv int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: strconv.Itoa(rv),
			Labels: map[string]string{v1alpha1.LabelPool: "pool", v1alpha1.LabelPhase: string(v1alpha1.PodRunning),
				v1alpha1.LabelSandboxID: sandbox},
			Annotations: map[string]string{v1alpha1.AnnotationClaim: claim, v1alpha1.AnnotationAddress: addr},
		},
		Status: corev1.PodStatus{PodIP: addr, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

// idlePod returns a pool pod that can be claimed.
func idlePod(name, addr string, rv int) *corev1.Pod {
	p := claimedPod(name, "", "", addr, rv)
	p.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodIdle)
	delete(p.Labels, v1alpha1.LabelSandboxID)
	delete(p.Annotations, v1alpha1.AnnotationClaim)
	return p
}

// boundSandbox returns a sandbox bound to the pod; unbound if claim is empty.
func boundSandbox(id, claim, pod string) *v1alpha1.Sandbox {
	s := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Name: id, ResourceVersion: "1"},
		Spec:       v1alpha1.SandboxSpec{Namespace: "ns", Pool: "pool", Team: "team"},
	}
	if claim != "" {
		s.Spec.Binding = &v1alpha1.Binding{ClaimID: claim, PodName: pod, PodUID: "uid-" + pod}
	}
	return s
}

func ended(s *v1alpha1.Sandbox) *v1alpha1.Sandbox {
	s = s.DeepCopy()
	s.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndReleased, At: metav1.NewTime(time.Unix(1, 0))}
	return s
}

// edit returns a changed copy with the next resourceVersion.
func edit[O interface {
	DeepCopy() O
	metav1.Object
}](o O, change func(O)) O {
	o = o.DeepCopy()
	rv, _ := strconv.Atoi(o.GetResourceVersion())
	o.SetResourceVersion(strconv.Itoa(rv + 1))
	change(o)
	return o
}

// journal writes down hook calls.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// take returns what was written since the last call.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

func (j *journal) hooks() Hooks {
	return Hooks{
		SandboxChanged:      func(id string) { j.add("changed %s", id) },
		PodAvailable:        func(p *corev1.Pod) { j.add("available %s", p.Name) },
		PodUnavailable:      func(ns, pool string, uid types.UID) { j.add("unavailable %s/%s %s", ns, pool, uid) },
		PodsSeen:            func(rv uint64) { j.add("seen %d", rv) },
		PodsRewound:         func() { j.add("rewound") },
		SandboxOrPodChanged: func(id string) { j.add("settled %s", id) },
		ClaimEnded:          func(id, claim string) { j.add("over %s %s", id, claim) },
		PoolChanged:         func(ns, name string, exists bool) { j.add("pool %s/%s %v", ns, name, exists) },
	}
}

// unstarted returns an index whose stores the test fills itself.
func unstarted(h Hooks) (x *Index, pods, sandboxes, pools *store) {
	x = New(Options{Hooks: h, Log: slog.New(slog.DiscardHandler)})
	return x, x.sources[0].store, x.sources[1].store, x.sources[2].store
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
