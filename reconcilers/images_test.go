package reconcilers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/kubetest"
)

var digests = map[string]string{"local/echo": "sha256:" + strings.Repeat("a", 64), "local/next": "sha256:" + strings.Repeat("b", 64)}

type registry struct{}

func (registry) ResolveDigests(_ context.Context, image string) ([]string, error) {
	if d, ok := digests[image]; ok {
		return []string{d}, nil
	}
	return nil, errors.New("no such image")
}

// runs writes what a kubelet reports of the pod's container.
func (w *world) runs(pod *corev1.Pod, id, image, imageID string, restarts int32) {
	w.t.Helper()
	w.setStatus(pod, func(s *corev1.PodStatus) {
		s.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", Ready: true, ContainerID: id, Image: image, ImageID: imageID, RestartCount: restarts,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
	})
}

// changing is a pool of one pod that may be used again, and a sandbox that
// claimed it with another image.
func changing(t *testing.T, recycleAfter time.Duration) (*world, *v1alpha1.Sandbox, *corev1.Pod) {
	w := newWorld(t, func(w *world) { w.options.DigestResolver, w.options.RecycleAfter = registry{}, recycleAfter })
	w.pool("p", 1, 1, func(p *v1alpha1.SandboxPool) {
		p.Spec.RecyclePolicy = v1alpha1.RecycleInPlace
		p.Spec.StartupTimeout = &metav1.Duration{Duration: 20 * time.Second}
		spec := &p.Spec.Template.Template.Spec
		spec.Volumes = []corev1.Volume{{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "shm", MountPath: "/dev/shm", ReadOnly: true}}
	})
	pod := w.await("p", v1alpha1.PodIdle, 1)[0]
	w.runs(&pod, "containerd://1", "docker.io/local/echo:latest", "docker.io/local/echo@"+digests["local/echo"], 0)
	kubetest.Eventually(t, "the container on record", func() error {
		if on := w.pod(&pod).Annotations[v1alpha1.AnnotationContainers]; !strings.Contains(on, "containerd://1") {
			return errors.New(on)
		}
		return nil
	})
	s := w.newSandbox("p", &pod)
	claim := claimPatch(s, v1alpha1.PodStarting).Set("/spec/containers/0/image", "local/next")
	if err := w.c.Patch(t.Context(), pod.DeepCopy(), claim.Build()); err != nil {
		t.Fatal(err)
	}
	return w, s, &pod
}

func (w *world) stays(pod *corev1.Pod, phase v1alpha1.PodPhase, what string) {
	w.t.Helper()
	never(w.t, 1500*time.Millisecond, "not "+string(phase)+" though "+what, func() bool { return phaseOf(w.pod(pod)) != phase })
}

// TestImageChangeAndRecyclingByAKubelet goes through an in-place image change and
// back, as containerd reports it: the pod is running, and later warming, only once
// another container runs the image.
func TestImageChangeAndRecyclingByAKubelet(t *testing.T) {
	w, s, pod := changing(t, 0)
	w.runs(pod, "containerd://1", "docker.io/local/next:latest", "docker.io/local/echo@"+digests["local/echo"], 0)
	w.stays(pod, v1alpha1.PodStarting, "the old container is reported under the new tag")
	w.runs(pod, "containerd://2", "docker.io/local/twin:1", "docker.io/local/twin@"+digests["local/echo"], 1)
	w.stays(pod, v1alpha1.PodStarting, "the old image was started once more")
	w.runs(pod, "containerd://3", "docker.io/local/twin:1", "docker.io/local/twin@"+digests["local/next"], 2)
	s = w.awaitSandbox(s, v1alpha1.SandboxRunning)
	if err := writes.EndSandbox(t.Context(), w.c, s.Name, v1alpha1.EndReleased, ""); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "its own image again", func() error {
		p := w.pod(pod)
		if p == nil || p.DeletionTimestamp != nil {
			t.Fatal("the pod was not used again")
		}
		if image := p.Spec.Containers[0].Image; image != "local/echo" {
			return errors.New(image)
		}
		return nil
	})
	if s = w.sandbox(s.Name); s.Status.Phase != v1alpha1.SandboxEnded || s.Status.FencedAt == nil || s.Status.Stop == nil {
		t.Errorf("recycling began before the sandbox was on record and fenced: %+v", s.Status)
	}
	w.stays(pod, v1alpha1.PodStopping, "the container of the last sandbox runs")
	w.runs(pod, "containerd://3", "docker.io/local/echo:latest", "docker.io/local/echo@"+digests["local/echo"], 2)
	w.stays(pod, v1alpha1.PodStopping, "the container of the last sandbox is reported under the other name")
	w.runs(pod, "containerd://4", "docker.io/local/echo:latest", "docker.io/local/echo@"+digests["local/echo"], 3)
	again := w.await("p", v1alpha1.PodIdle, 1)[0]
	if again.UID != pod.UID || again.Labels[v1alpha1.LabelSandboxID] != "" || again.Annotations[v1alpha1.AnnotationClaim] != "" || again.Annotations[v1alpha1.AnnotationStop] != "" {
		t.Errorf("pod %s, labels %v, annotations %v", again.Name, again.Labels, again.Annotations)
	}
}

// TestPodThatStartedItsImageLatelyIsNotRecycled: its kubelet would pause before it starts
// the same image there for the next claim.
func TestPodThatStartedItsImageLatelyIsNotRecycled(t *testing.T) {
	w, s, pod := changing(t, time.Hour)
	w.runs(pod, "containerd://2", "docker.io/local/next:latest", "docker.io/local/next@"+digests["local/next"], 1)
	s = w.awaitSandbox(s, v1alpha1.SandboxRunning)
	if err := writes.EndSandbox(t.Context(), w.c, s.Name, v1alpha1.EndReleased, ""); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the end of its pod", func() error {
		p := w.pod(pod)
		if p == nil || p.DeletionTimestamp != nil {
			return nil
		}
		if since, ok := p.Annotations[v1alpha1.AnnotationRecycling]; ok {
			t.Fatalf("the pod is used again since %s", since)
		}
		return errors.New(string(phaseOf(p)))
	})
	w.awaitGone(pod)
	if next := w.await("p", v1alpha1.PodIdle, 1)[0]; next.UID == pod.UID {
		t.Errorf("stock is the pod %s again", next.Name)
	}
}

// TestImageThatCannotBePulled ends with the kubelet's words.
func TestImageThatCannotBePulled(t *testing.T) {
	for reason, want := range map[string]string{"InvalidImageName": "InvalidImageName", "ErrImagePull": "StartupTimeout"} {
		t.Run(reason, func(t *testing.T) {
			w, s, pod := changing(t, 0)
			w.setStatus(pod, func(s *corev1.PodStatus) {
				c := &s.ContainerStatuses[0]
				c.Ready = false
				c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no such manifest"}}
				s.Conditions[0].Status = corev1.ConditionFalse
			})
			var stop *v1alpha1.StopRecord
			kubetest.Eventually(t, "the record", func() error {
				if stop = w.sandbox(s.Name).Status.Stop; stop == nil {
					return fmt.Errorf("pod %s", phaseOf(w.pod(pod)))
				}
				return nil
			})
			if stop.StopReason != v1alpha1.StopFailed || stop.FailureReason != want || !strings.Contains(stop.FailureMessage, "no such manifest") {
				t.Errorf("%+v", stop)
			}
			w.awaitGone(pod)
		})
	}
}
