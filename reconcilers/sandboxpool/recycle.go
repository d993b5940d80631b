package sandboxpool

import (
	"context"
	"fmt"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/reconcilers/podstate"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
)

// fencePatience is how long a pod that could be recycled waits for its fence, beside the
// cooldown of its address after that.
const fencePatience = 30 * time.Second

// DefaultRecycleAfter is longer than a kubelet remembers by default that it has started
// an image in a pod.
const DefaultRecycleAfter = 11 * time.Minute

// decideRecycle takes a stopped pod of an InPlace pool one step back to warming,
// or deletes it. It is pure.
//
//	stopping ─claim fenced─▶ own images ─all containers proved new─▶ warming
//	    └─failed, or not fenced in time─▶ deleted └─not proved in time─▶ deleted
//
// The images are changed back only after every gateway knows that the claim is
// over: what starts then must not answer for it.
func decideRecycle(v view, now time.Time) decision {
	pod, s := v.pod, v.sandbox
	gone := decision{step: stepDelete, reason: "NotRecycled"}
	if began, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AnnotationRecycling]); err == nil {
		if all, _ := podstate.RunsItsImages(pod); all && ready(pod) && pod.Status.PodIP == pod.Annotations[v1alpha1.AnnotationAddress] {
			return decision{step: stepRewarm}
		}
		left := v.startup - now.Sub(began)
		if left <= 0 || left > v.startup || v1alpha1.Finished(pod) {
			return gone
		}
		return decision{recheck: left}
	}
	if didNotServe(s) || !hasFinalizer(pod) { // it was let go when its pool did not use pods again
		return gone
	}
	if v.fenced && s.Status.Phase == v1alpha1.SandboxEnded {
		return decision{step: stepRecycle}
	}
	if s.Spec.End == nil { // fenced for a reason of its own: nothing says for how long to wait
		return gone
	}
	patience := fencePatience + v.cooldown
	left := patience - now.Sub(s.Spec.End.At.Time)
	if left <= 0 || left > patience {
		return gone
	}
	return decision{recheck: min(left, time.Second)}
}

// didNotServe: what kept this sandbox from running, or broke it, may lie in the
// pod, which the next one would get.
func didNotServe(s *v1alpha1.Sandbox) bool {
	return s.Spec.End != nil && (s.Spec.End.Reason == v1alpha1.EndStartupTimeout || s.Spec.End.Reason == v1alpha1.EndFailed)
}

// recyclable: every container's image was changed by the claim, so that changing
// it back restarts it, and nothing that the claim could write outlives that. It
// is pure; own are the containers of the pool's template.
func recyclable(pod *corev1.Pod, own []corev1.Container) bool {
	record := podstate.OnRecord(pod)
	if len(own) != len(pod.Spec.Containers) || pod.DeletionTimestamp != nil || len(pod.Spec.EphemeralContainers) > 0 {
		return false
	}
	writable := map[string]bool{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		writable[v.Name] = v.ConfigMap == nil && v.Secret == nil && v.DownwardAPI == nil && v.Projected == nil
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		was, known := record[c.Name]
		if !known || was.ID == "" || own[i].Name != c.Name || own[i].Image == c.Image {
			return false
		}
		// A pod's containers share one /dev/shm, which outlives their restarts.
		covered := false
		for _, m := range c.VolumeMounts {
			if writable[m.Name] && !m.ReadOnly {
				return false
			}
			covered = covered || path.Clean(m.MountPath) == "/dev/shm"
		}
		if !covered || len(c.VolumeDevices) > 0 {
			return false
		}
	}
	for i := range pod.Spec.InitContainers { // a sidecar keeps running
		if p := pod.Spec.InitContainers[i].RestartPolicy; p != nil && *p == corev1.ContainerRestartPolicyAlways {
			return false
		}
	}
	return true
}

// restartsAtOnce reports whether the kubelet would start the pod's own images again without a
// wait. Once it has started a container with an image, it waits before it starts one with that
// image in the pod again: 10 s, then twice as long each time, until 10 minutes have passed
// since the last start. Meanwhile no claim could have the pod, and the pool would make no
// other in its place.
func (r *SandboxPoolReconciler) restartsAtOnce(pod *corev1.Pod) bool {
	if r.RecycleAfter <= 0 {
		return true
	}
	started, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AnnotationStartedAt])
	return err == nil && r.now().Sub(started) >= r.RecycleAfter
}

// recycle gives a stopped pod its own images back, and notes what ran until now.
func (r *SandboxPoolReconciler) recycle(ctx context.Context, tpl *podtemplate.Template, pod *corev1.Pod) error {
	p := writes.For(pod.UID).
		Test(writes.Phase, v1alpha1.PodStopping).
		Test(writes.Claim, pod.Annotations[v1alpha1.AnnotationClaim]).
		Test(pathDeleted, nil).
		Set(pathContainers, podstate.EncodeContainers(podstate.ContainersOf(pod))).
		Set(writes.Annotation(v1alpha1.AnnotationRecycling), r.now().UTC().Format(time.RFC3339Nano))
	for i, own := range tpl.Pod.Spec.Containers {
		at := fmt.Sprintf("/spec/containers/%d", i)
		p = p.Test(at+"/name", own.Name).Set(at+"/image", own.Image)
	}
	return r.patch(ctx, pod, "", p)
}

// rewarm makes a proved pod what it was when it was made: nothing of the claim is
// left on it. The resourceVersion is tested, since all labels and annotations are
// replaced.
func (r *SandboxPoolReconciler) rewarm(ctx context.Context, pool *v1alpha1.SandboxPool, tpl *podtemplate.Template, pod *corev1.Pod) error {
	renewed := tpl.NewPod(pool)
	if key := pod.Labels[v1alpha1.LabelInitKey]; key != "" {
		renewed.Labels[v1alpha1.LabelInitKey] = key // its containers have that key still
	}
	renewed.Annotations[v1alpha1.AnnotationRecycled] = r.now().UTC().Format(time.RFC3339Nano)
	applied, err := r.tryPatch(ctx, pod, v1alpha1.PodWarming, writes.For(pod.UID).
		Test("/metadata/resourceVersion", pod.ResourceVersion).
		Test(writes.Phase, v1alpha1.PodStopping).
		Test(writes.Claim, pod.Annotations[v1alpha1.AnnotationClaim]).
		Test(pathDeleted, nil).
		Set("/metadata/labels", renewed.Labels).
		Set("/metadata/annotations", renewed.Annotations))
	if applied && r.IdleNotifier != nil {
		r.IdleNotifier.OnSandboxReleased(ctx, pod.Labels[v1alpha1.LabelSandboxID])
	}
	return err
}
