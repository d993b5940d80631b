package byname

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress/seal"
	"github.com/sandlane/sandlane/test/kubetest"
)

// slot is an address that one sandbox has after the other, in one pod that is used again or
// in pods that are replaced.
type slot struct {
	w    *world
	addr netip.Addr
	pod  *corev1.Pod // nil before the first, and after it was replaced
	// former are clients of sandboxes that are over, which go on for a moment.
	former sync.WaitGroup
}

// run has sandboxes until the context ends.
func (s *slot) run(ctx context.Context) error {
	defer s.former.Wait()
	last := make(chan struct{}) // closed once the next claim is there
	for ctx.Err() == nil {
		next, err := s.sandbox(context.WithoutCancel(ctx), last)
		if err != nil {
			return err
		}
		last = next
	}
	close(last)
	return nil
}

// sandbox is the life of one, up to its acknowledged fence; before is closed once it has
// its claim. What it returns the next one closes.
func (s *slot) sandbox(ctx context.Context, before chan struct{}) (last chan struct{}, err error) {
	last = make(chan struct{})
	defer func() {
		if err != nil {
			close(last)
		}
	}()
	if err := s.idle(ctx); err != nil {
		return last, err
	}
	id := kubetest.Name("s")
	x, err := s.bind(ctx, id)
	if err != nil {
		return last, err
	}
	s.w.claims.Add(1)
	close(before)
	c := &sandboxClient{w: s.w, addr: s.addr, claim: id}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var clients sync.WaitGroup
	clients.Go(func() { c.run(running) })
	streaming, endStream := context.WithTimeout(ctx, time.Minute)
	for _, host := range []string{ruledHost, plainHost} {
		s.former.Go(func() { c.stream(streaming, host) })
	}
	wait(ctx, 200*time.Millisecond+rand.N(800*time.Millisecond))
	rv, err := s.end(ctx, x)
	if err == nil {
		for range 2 {
			s.former.Go(func() { c.late(streaming, last) })
		}
		err = s.fence(ctx, rv)
	}
	if err == nil {
		s.w.judge.over(id)
	}
	stop()
	clients.Wait()
	time.AfterFunc(3*outlive, endStream)
	if err == nil {
		err = client.IgnoreNotFound(s.w.api.Delete(ctx, x))
	}
	return last, err
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// idle makes the slot's pod one that may be claimed: the one that was there, or another.
func (s *slot) idle(ctx context.Context) error {
	if s.pod != nil && rand.IntN(2) == 0 {
		s.pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodIdle)
		if err := s.w.api.Update(ctx, s.pod); err != nil {
			return fmt.Errorf("use a pod again: %w", err)
		}
		return nil
	}
	if s.pod != nil {
		if err := s.w.api.Delete(ctx, s.pod, client.GracePeriodSeconds(0)); err != nil {
			return fmt.Errorf("replace a pod: %w", err)
		}
	}
	s.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.w.namespace, Name: kubetest.Name("pod"),
		Labels:      map[string]string{v1alpha1.LabelPool: "pool", v1alpha1.LabelPhase: string(v1alpha1.PodIdle), v1alpha1.LabelEgress: string(v1alpha1.EgressByName)},
		Annotations: map[string]string{v1alpha1.AnnotationAddress: s.addr.String()},
	}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "local/echo"}}}}
	err := s.w.api.Create(ctx, s.pod)
	if err == nil {
		s.pod.Status.PodIP, s.pod.Status.PodIPs = s.addr.String(), []corev1.PodIP{{IP: s.addr.String()}}
		err = s.w.api.Status().Update(ctx, s.pod)
	}
	if err != nil {
		return fmt.Errorf("make a pod: %w", err)
	}
	return nil
}

// bind makes a sandbox with a credential of its own, and gives it the pod.
func (s *slot) bind(ctx context.Context, id string) (*v1alpha1.Sandbox, error) {
	rules, err := json.Marshal(map[string]map[string]string{ruledHost: {"Authorization": credential(id)}})
	if err != nil {
		return nil, err
	}
	sealed, err := s.w.public.Seal.Seal(seal.OfSandbox(s.w.namespace, id), rules)
	if err != nil {
		return nil, err
	}
	x := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1alpha1.SandboxSpec{
		Namespace: s.w.namespace, Pool: "pool",
		Egress: &v1alpha1.SandboxEgress{
			DenyAll: true, AllowNames: []string{ruledHost, plainHost}, Sealed: sealed,
			Rules: []v1alpha1.EgressRule{{Host: ruledHost, Headers: []v1alpha1.EgressHeader{{Name: "Authorization", Shown: "***"}}}},
		},
		Binding: &v1alpha1.Binding{ClaimID: "claim-of-" + id, PodName: s.pod.Name, PodUID: string(s.pod.UID)},
	}}
	if err := s.w.api.Create(ctx, x); err != nil {
		return nil, fmt.Errorf("make a sandbox: %w", err)
	}
	s.pod.Labels[v1alpha1.LabelSandboxID], s.pod.Annotations[v1alpha1.AnnotationClaim] = id, x.Spec.Binding.ClaimID
	s.pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodRunning)
	if err := s.w.api.Update(ctx, s.pod); err != nil {
		return nil, fmt.Errorf("give a pod to a sandbox: %w", err)
	}
	return x, nil
}

// end writes that a sandbox is over, and takes its pod from it. The version is that from
// which on nothing says that the address is its.
func (s *slot) end(ctx context.Context, x *v1alpha1.Sandbox) (rv uint64, err error) {
	x.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndDeleted, At: metav1.Now()}
	if err := s.w.api.Update(ctx, x); err != nil {
		return 0, fmt.Errorf("end a sandbox: %w", err)
	}
	delete(s.pod.Labels, v1alpha1.LabelSandboxID)
	delete(s.pod.Annotations, v1alpha1.AnnotationClaim)
	s.pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodStopping)
	if err := s.w.api.Update(ctx, s.pod); err != nil {
		return 0, fmt.Errorf("take a pod from a sandbox: %w", err)
	}
	return strconv.ParseUint(s.pod.ResourceVersion, 10, 64)
}

// fence asks until all processes have acknowledged.
func (s *slot) fence(ctx context.Context, rv uint64) error {
	for begun := time.Now(); time.Since(begun) < 3*time.Minute; {
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := s.w.fencer.Fence(asking, s.addr, rv)
		cancel()
		if err == nil {
			return nil
		}
		wait(ctx, 100*time.Millisecond)
	}
	return errors.New("a fence was not acknowledged for three minutes")
}
