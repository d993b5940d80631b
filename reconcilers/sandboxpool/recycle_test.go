package sandboxpool

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/podstate"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
)

// changedPod is a pod whose only container a claim gave another image, and which
// has nothing writable that outlives it.
func changedPod(change ...func(*view)) view {
	return claimedPod(v1alpha1.PodStopping, append([]func(*view){onRecordEnded, func(v *view) {
		p := v.pod
		p.Spec.Containers[0].Image = "local/next"
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "shm", MountPath: "/dev/shm/", ReadOnly: true}}
		p.Spec.Volumes = []corev1.Volume{{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		v.recycle = true
	}}, change...)...)
}

func onRecordEnded(v *view) {
	endOnRecord(v)
	v.sandbox.Status.Phase = v1alpha1.SandboxEnded
	v.sandbox.Spec.End.At = metav1.NewTime(now.Add(-5 * time.Second))
}

func TestRecyclable(t *testing.T) {
	own := []corev1.Container{{Name: "main", Image: "local/echo"}}
	always := corev1.ContainerRestartPolicyAlways
	mount := func(s corev1.VolumeSource, readOnly bool) func(*view) {
		return func(v *view) {
			v.pod.Spec.Volumes = append(v.pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: s})
			c := &v.pod.Spec.Containers[0]
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: "/v", ReadOnly: readOnly})
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*view)
		want   bool
	}{
		{"all images changed, nothing shared", func(*view) {}, true},
		{"image not changed", func(v *view) { v.pod.Spec.Containers[0].Image = "local/echo" }, false},
		{"one of two changed", func(v *view) {
			v.pod.Spec.Containers = append(v.pod.Spec.Containers, corev1.Container{Name: "side", Image: "local/side"})
		}, false},
		{"no record", func(v *view) { delete(v.pod.Annotations, v1alpha1.AnnotationContainers) }, false},
		{"no container ID on record", func(v *view) {
			v.pod.Annotations[v1alpha1.AnnotationContainers] = `{"main":{"image":"local/echo","restarts":0}}`
		}, false},
		{"its own /dev/shm", func(v *view) { v.pod.Spec.Containers[0].VolumeMounts = nil }, false},
		{"writable /dev/shm", func(v *view) { v.pod.Spec.Containers[0].VolumeMounts[0].ReadOnly = false }, false},
		{"emptyDir", mount(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, false), false},
		{"emptyDir, read only", mount(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, true), true},
		{"hostPath", mount(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}, false), false},
		{"claim", mount(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}, false), false},
		{"configMap", mount(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}, false), true},
		{"a container was added for debugging", func(v *view) { v.pod.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 1) }, false},
		{"sidecar", func(v *view) { v.pod.Spec.InitContainers = []corev1.Container{{RestartPolicy: &always}} }, false},
		{"being deleted", deleting, false},
	} {
		if got := recyclable(changedPod(tt.change).pod, own); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// A pod is used again once its kubelet does not remember its last start of the claim's
// image; at once where kubelets do not pause; never if it is not known when that was.
func TestRested(t *testing.T) {
	for _, tt := range []struct {
		after   time.Duration
		started string
		want    bool
	}{
		{DefaultRecycleAfter, now.Add(-DefaultRecycleAfter).Format(time.RFC3339Nano), true},
		{DefaultRecycleAfter, now.Add(-DefaultRecycleAfter + time.Second).Format(time.RFC3339Nano), false},
		{DefaultRecycleAfter, now.Add(time.Hour).Format(time.RFC3339Nano), false},
		{DefaultRecycleAfter, "", false},
		{0, now.Format(time.RFC3339Nano), true},
		{0, "", true},
	} {
		pod := changedPod().pod
		pod.Annotations[v1alpha1.AnnotationStartedAt] = tt.started
		r := &SandboxPoolReconciler{RecycleAfter: tt.after, Clock: clocktesting.NewFakePassiveClock(now)}
		if got := r.restartsAtOnce(pod); got != tt.want {
			t.Errorf("after %s, started at %q: %v", tt.after, tt.started, got)
		}
	}
}

func TestDecideRecycle(t *testing.T) {
	fenced := func(v *view) { v.fenced = true }
	begun := func(ago time.Duration) func(*view) {
		return func(v *view) {
			fenced(v)
			v.pod.Annotations[v1alpha1.AnnotationContainers] = podstate.EncodeContainers(podstate.ContainersOf(v.pod))
			v.pod.Spec.Containers[0].Image = "local/echo"
			v.pod.Annotations[v1alpha1.AnnotationRecycling] = now.Add(-ago).Format(time.RFC3339Nano)
		}
	}
	again := func(v *view) {
		v.pod.Status.ContainerStatuses[0].ContainerID, v.pod.Status.ContainerStatuses[0].RestartCount = "run://2", 1
	}
	for _, tt := range []struct {
		name string
		view view
		want step
	}{
		{"not fenced", changedPod(), stepNone},
		{"not fenced for long", changedPod(func(v *view) { v.sandbox.Spec.End.At = metav1.NewTime(now.Add(-time.Minute)) }), stepDelete},
		{"not fenced, while its address would rest", changedPod(func(v *view) {
			v.cooldown, v.sandbox.Spec.End.At = time.Minute, metav1.NewTime(now.Add(-time.Minute))
		}), stepNone},
		{"not fenced, and its address would have rested", changedPod(func(v *view) {
			v.cooldown, v.sandbox.Spec.End.At = time.Minute, metav1.NewTime(now.Add(-90*time.Second))
		}), stepDelete},
		{"fenced, not Ended", changedPod(fenced, func(v *view) { v.sandbox.Status.Phase = v1alpha1.SandboxEnding }), stepNone},
		{"fenced without an end", changedPod(fenced, func(v *view) { v.sandbox.Spec.End, v.sandbox.Status.Phase = nil, v1alpha1.SandboxEnding }), stepDelete},
		{"fenced", changedPod(fenced), stepRecycle},
		{"did not start in time", changedPod(fenced, func(v *view) { v.sandbox.Spec.End.Reason = v1alpha1.EndStartupTimeout }), stepDelete},
		{"broke", changedPod(fenced, func(v *view) { v.sandbox.Spec.End.Reason = v1alpha1.EndFailed }), stepDelete},
		{"no stock is lacking", changedPod(fenced, func(v *view) { v.recycle = false }), stepDelete},
		{"the old container runs", changedPod(begun(time.Second)), stepNone},
		{"the old container runs, and is reported under the name of the new", changedPod(begun(time.Second), func(v *view) {
			v.pod.Status.ContainerStatuses[0].Image = "local/echo:latest"
		}), stepNone},
		{"the new container runs", changedPod(begun(time.Second), again), stepRewarm},
		{"the new container is not Ready", changedPod(begun(time.Second), again, unready), stepNone},
		{"another image runs", changedPod(begun(time.Second), again, func(v *view) { v.pod.Status.ContainerStatuses[0].Image = "local/next:latest" }), stepNone},
		{"at another address", changedPod(begun(time.Second), again, func(v *view) { v.pod.Status.PodIP = "10.0.0.2" }), stepNone},
		{"not proved in time", changedPod(begun(startup)), stepDelete},
		{"over", changedPod(begun(time.Second), func(v *view) { v.pod.Status.Phase = corev1.PodFailed }), stepDelete},
		{"crashed, never to be used again", func() view {
			v := changedPod(fenced)
			v.pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodFailed)
			return v
		}(), stepDelete},
	} {
		if d := decide(tt.view, now); d.step != tt.want || d.step == stepNone && d.recheck <= 0 {
			t.Errorf("%s: %+v", tt.name, d)
		}
	}
}

// A pod that is recycled keeps the name of its init key, which its containers have for life.
func TestRecycledPodKeepsItsInitKey(t *testing.T) {
	l := newLagging(t, 0)
	v := claimedPod(v1alpha1.PodStopping)
	v.pod.Labels[v1alpha1.LabelPool], v.pod.Labels[v1alpha1.LabelInitKey] = "p", "key"
	if err := l.real.Create(t.Context(), v.pod); err != nil {
		t.Fatal(err)
	}
	if err := l.rewarm(t.Context(), l.pool(), &podtemplate.Template{Spec: &v1alpha1.SandboxTemplateSpec{}}, v.pod); err != nil {
		t.Fatal(err)
	}
	var p corev1.Pod
	if err := l.real.Get(t.Context(), keyOf(v.pod), &p); err != nil {
		t.Fatal(err)
	}
	if v1alpha1.PhaseOf(&p) != v1alpha1.PodWarming || p.Labels[v1alpha1.LabelInitKey] != "key" || p.Labels[v1alpha1.LabelSandboxID] != "" {
		t.Errorf("%v", p.Labels)
	}
}

// TestHooksRunBesideTheReconciler: the pod is running only after them, and failed
// if they fail.
func TestHooksRunBesideTheReconciler(t *testing.T) {
	for _, outcome := range []error{nil, errors.New("no")} {
		l := newLagging(t, 0)
		gate := make(chan struct{})
		l.HookRunner = runner(func() error { <-gate; return outcome })
		v := claimedPod(v1alpha1.PodStarting)
		v.pod.Labels[v1alpha1.LabelPool] = "p"
		v.pod.Annotations[v1alpha1.AnnotationPostStartHooks] = podtemplate.EncodeHooks([]v1alpha1.PostStartHook{{Name: "h", Exec: &v1alpha1.ExecHook{Command: []string{"x"}}}})
		if d := decide(v, now); d.step != stepHooks {
			t.Fatalf("%+v, want the hooks run", d)
		}
		if err := l.real.Create(t.Context(), v.pod); err != nil {
			t.Fatal(err)
		}
		look := func() v1alpha1.PodPhase {
			t.Helper()
			if _, err := l.hooks(t.Context(), l.pool(), nil, v.pod, startup); err != nil {
				t.Fatal(err)
			}
			var p corev1.Pod
			if err := l.real.Get(t.Context(), keyOf(v.pod), &p); err != nil {
				t.Fatal(err)
			}
			return v1alpha1.PhaseOf(&p)
		}
		if phase := look(); phase != v1alpha1.PodStarting {
			t.Errorf("%s while its hooks run", phase)
		}
		run := l.running.runs[v.pod.UID]
		close(gate)
		<-run.done
		want := v1alpha1.PodRunning
		if outcome != nil {
			want = v1alpha1.PodFailed
		}
		if phase := look(); phase != want {
			t.Errorf("%s after its hooks, want %s", phase, want)
		}
		look() // the cache is behind: the hooks do not run again
		if l.running.runs[v.pod.UID] != run {
			t.Error("its hooks begin anew, though it may serve")
		}
		v.pod.Labels[v1alpha1.LabelPhase] = string(want)
		if l.observe(v.pod); len(l.running.runs) != 0 {
			t.Error("its hooks are never forgotten")
		}
	}
}

type runner func() error

func (r runner) Exec(context.Context, *corev1.Pod, string, []string) error { return r() }

func (r runner) Post(context.Context, *corev1.Pod, *v1alpha1.HTTPPostHook) error { return r() }
