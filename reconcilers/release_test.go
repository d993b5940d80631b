package reconcilers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/kubetest"
)

func TestPoolMakesIdlePods(t *testing.T) {
	w := newWorld(t)
	pool := w.pool(strings.Repeat("long", 15), 3, 0)
	for _, pod := range w.await(pool.Name, v1alpha1.PodIdle, 3) {
		if len(pod.Name) > 63 {
			t.Errorf("pod name %q has %d characters", pod.Name, len(pod.Name))
		}
		if pod.Annotations[v1alpha1.AnnotationAddress] != pod.Status.PodIP {
			t.Errorf("idle pod notes address %q and has %q", pod.Annotations[v1alpha1.AnnotationAddress], pod.Status.PodIP)
		}
		if pod.Annotations[v1alpha1.AnnotationTemplateHash] == "" || !slices.Contains(pod.Finalizers, v1alpha1.FinalizerPod) || !metav1.IsControlledBy(&pod, pool) {
			t.Errorf("pod lacks its template hash, finalizer or owner: %+v", pod.ObjectMeta)
		}
		if s := pod.Spec; *s.TerminationGracePeriodSeconds != 1 || *s.EnableServiceLinks || *s.AutomountServiceAccountToken {
			t.Errorf("pod lacks the defaults of pool pods")
		}
	}
	kubetest.Eventually(t, "pool Ready", func() error {
		if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		if pool.Status.Phase != v1alpha1.PoolReady || pool.Status.Idle != 3 || len(pool.Status.Conditions) != 3 {
			return fmt.Errorf("%+v", pool.Status)
		}
		return nil
	})
}

func TestLifeOfASandbox(t *testing.T) {
	w := newWorld(t, func(w *world) { w.options.RecordTTL = 2 * time.Second })
	w.pool("p", 1, 0)
	w.await("p", v1alpha1.PodIdle, 1)
	s, pod := w.claim("p", v1alpha1.PodStarting)
	s = w.awaitSandbox(s, v1alpha1.SandboxRunning) // the pod runs its image: starting → running
	if s.Status.Address != pod.Status.PodIP || s.Status.StartedAt == nil {
		t.Errorf("status %+v of a sandbox in a pod at %s", s.Status, pod.Status.PodIP)
	}
	w.await("p", v1alpha1.PodIdle, 1)

	if err := writes.EndSandbox(t.Context(), w.c, s.Name, v1alpha1.EndReleased, "the test is over"); err != nil {
		t.Fatal(err)
	}
	s = w.awaitSandbox(s, v1alpha1.SandboxEnded)
	w.awaitGone(pod)
	if s.Status.FencedAt == nil || s.Status.Address != pod.Status.PodIP || s.Status.Reason != "Released" {
		t.Errorf("status of an ended sandbox: %+v", s.Status)
	}
	if stop := s.Status.Stop; stop == nil || stop.StopReason != v1alpha1.StopReleased || stop.PodName != pod.Name || stop.NodeName != "node" {
		t.Errorf("stop record %+v", s.Status.Stop)
	}
	claimed, _ := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if rvs := w.gateways.of(pod.Status.PodIP); len(rvs) != 1 || rvs[0] <= claimed {
		t.Errorf("fenced with %v, want one resourceVersion after the claim's %d", rvs, claimed)
	}
	w.awaitSandbox(s, "") // its TTL
	if told := w.eventsOf(s); len(told) != 0 {
		t.Errorf("Events of a normal life: %v", told)
	}
}

// eventsOf returns the reasons of the sandbox's Events.
func (w *world) eventsOf(s *v1alpha1.Sandbox) []string {
	w.t.Helper()
	var list eventsv1.EventList
	if err := w.c.List(w.t.Context(), &list, client.MatchingFields{"regarding.uid": string(s.UID)}); err != nil {
		w.t.Fatal(err)
	}
	var reasons []string
	for _, e := range list.Items {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

// TestAddressWaitsForItsFence gives every pod the same address.
func TestAddressWaitsForItsFence(t *testing.T) {
	w := newWorld(t)
	ip := newAddress()
	w.node.use(func(*corev1.Pod) string { return ip })
	w.pool("p", 1, 1)
	w.await("p", v1alpha1.PodIdle, 1)
	s, pod := w.running("p")
	w.gateways.setAway(true)
	if err := writes.EndSandbox(t.Context(), w.c, s.Name, v1alpha1.EndReleased, ""); err != nil {
		t.Fatal(err)
	}
	w.awaitGone(pod) // deletion waits for no fence
	next := w.await("p", v1alpha1.PodWarming, 1)[0]
	kubetest.Eventually(t, "the next pod has the address", func() error {
		if w.pod(&next).Status.PodIP != ip {
			return errors.New("not yet")
		}
		return nil
	})
	never(t, 2*time.Second, "a pod turned idle before its address was fenced", func() bool {
		return len(w.pods("p", v1alpha1.PodIdle)) > 0
	})
	if got := w.sandbox(s.Name); got.Status.Phase != v1alpha1.SandboxEnding || got.Status.FencedAt != nil {
		t.Fatalf("unfenced sandbox is %s, fenced %v", got.Status.Phase, got.Status.FencedAt)
	}
	w.gateways.setAway(false)
	s = w.awaitSandbox(s, v1alpha1.SandboxEnded)
	w.await("p", v1alpha1.PodIdle, 1) // next, or the one in its place: it may not wait for ten seconds
	if held := time.Since(s.Status.FencedAt.Time); held < addressCooldown {
		t.Errorf("idle %v after the fence, want %v", held, addressCooldown)
	}
}

// TestPoolRefillsOnOtherAddresses gives every pod the first address that no other
// pod shows: a pod that is deleted gives its own to the next.
func TestPoolRefillsOnOtherAddresses(t *testing.T) {
	w := newWorld(t)
	var addresses []string
	for range 8 {
		addresses = append(addresses, newAddress())
	}
	w.node.use(func(*corev1.Pod) string {
		var pods corev1.PodList
		if w.c.List(context.Background(), &pods, client.InNamespace(w.ns)) != nil {
			return ""
		}
		shown := map[string]bool{}
		for i := range pods.Items {
			shown[pods.Items[i].Status.PodIP] = true
		}
		for _, a := range addresses {
			if !shown[a] {
				return a
			}
		}
		return ""
	})
	w.pool("p", 2, 0)
	w.await("p", v1alpha1.PodIdle, 2)
	var ended []*v1alpha1.Sandbox
	var former []*corev1.Pod
	for range 2 {
		s, pod := w.running("p")
		ended, former = append(ended, s), append(former, pod)
	}
	w.await("p", v1alpha1.PodIdle, 2)
	w.gateways.setAway(true)
	for i, s := range ended {
		if err := writes.EndSandbox(t.Context(), w.c, s.Name, v1alpha1.EndReleased, ""); err != nil {
			t.Fatal(err)
		}
		w.awaitGone(former[i])
	}
	for range 2 {
		w.running("p")
	}
	// The next two get what the ended ones had, which is not fenced.
	for i, p := range w.await("p", v1alpha1.PodWarming, 2) {
		kubetest.Eventually(t, "an address", func() error {
			if w.pod(&p).Status.PodIP == "" {
				return errors.New("none yet")
			}
			return nil
		})
		p = *w.pod(&p)
		if p.Status.PodIP != former[0].Status.PodIP && p.Status.PodIP != former[1].Status.PodIP {
			t.Fatalf("the new pod %d has %s", i, p.Status.PodIP)
		}
		w.setStatus(&p, func(s *corev1.PodStatus) {
			s.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Minute))
		})
	}
	for _, p := range w.await("p", v1alpha1.PodIdle, 2) {
		if a := p.Annotations[v1alpha1.AnnotationAddress]; a == former[0].Status.PodIP || a == former[1].Status.PodIP {
			t.Errorf("a pod is idle with %s, which is not fenced", a)
		}
	}
	w.await("p", v1alpha1.PodWarming, 2)
	w.gateways.setAway(false)
	for _, s := range ended {
		w.awaitSandbox(s, v1alpha1.SandboxEnded)
	}
	w.await("p", v1alpha1.PodWarming, 0)
	w.await("p", v1alpha1.PodIdle, 2)
}

// TestSmallRange has as many addresses as pods, and ends sandboxes as fast as they get
// pods: each next one waits for an address, none waits for ever, and no address is idle
// before its rest is over. InPlace keeps the address in its pod.
func TestSmallRange(t *testing.T) {
	for _, policy := range []v1alpha1.RecyclePolicy{v1alpha1.RecycleReplace, v1alpha1.RecycleInPlace} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t)
			var addresses []string
			for range 4 {
				addresses = append(addresses, newAddress())
			}
			w.node.use(func(*corev1.Pod) string {
				var pods corev1.PodList
				if w.c.List(context.Background(), &pods, client.InNamespace(w.ns)) != nil {
					return ""
				}
				shown := map[string]bool{}
				for i := range pods.Items {
					shown[pods.Items[i].Status.PodIP] = true
				}
				for _, a := range addresses {
					if !shown[a] {
						return a
					}
				}
				return ""
			})
			w.pool("p", 2, 4, func(p *v1alpha1.SandboxPool) { p.Spec.RecyclePolicy = policy })
			free := map[string]time.Time{}
			for range 10 {
				var idle []corev1.Pod
				kubetest.Eventually(t, "an idle pod", func() error {
					if idle = w.pods("p", v1alpha1.PodIdle); len(idle) == 0 {
						return errors.New("none")
					}
					return nil
				})
				for i := range idle {
					ip := idle[i].Annotations[v1alpha1.AnnotationAddress]
					since, err := time.Parse(time.RFC3339Nano, idle[i].Annotations[v1alpha1.AnnotationIdleSince])
					if err != nil || since.Before(free[ip]) {
						t.Fatalf("%s is idle since %v (%v), and rests until %v", ip, since, err, free[ip])
					}
				}
				s, pod := w.running("p")
				if err := writes.EndSandbox(t.Context(), w.c, s.Name, v1alpha1.EndReleased, ""); err != nil {
					t.Fatal(err)
				}
				s = w.awaitSandbox(s, v1alpha1.SandboxEnded)
				free[pod.Status.PodIP] = s.Status.FencedAt.Add(addressCooldown)
			}
		})
	}
}

func TestClaimedPodDeletedByForce(t *testing.T) {
	w := newWorld(t)
	w.pool("p", 1, 0)
	w.await("p", v1alpha1.PodIdle, 1)
	s, pod := w.running("p")
	w.gateways.setAway(true)
	w.deleteNow(pod)
	s = w.awaitSandbox(s, v1alpha1.SandboxEnding)
	if s.Spec.End.Reason != v1alpha1.EndFailed || !strings.Contains(s.Spec.End.Message, "was deleted") || s.Status.Address != pod.Status.PodIP {
		t.Errorf("end %+v, status %+v", s.Spec.End, s.Status)
	}
	w.awaitGone(pod)
	w.gateways.setAway(false)
	w.awaitSandbox(s, v1alpha1.SandboxEnded)
}

// TestClaimedPodDeletedWithoutAController has no controller when the pod is
// claimed and deleted: the finalizer alone keeps what must be known.
func TestClaimedPodDeletedWithoutAController(t *testing.T) {
	w := newWorld(t)
	w.pool("p", 1, 0)
	w.await("p", v1alpha1.PodIdle, 1)
	w.stop()
	s, pod := w.claim("p", v1alpha1.PodRunning)
	w.deleteNow(pod)
	if p := w.pod(pod); p == nil {
		t.Fatal("the pod is gone although nobody knows its address")
	}
	w.start()
	s = w.awaitSandbox(s, v1alpha1.SandboxEnded)
	if s.Status.Address != pod.Status.PodIP || s.Status.FencedAt == nil || len(w.gateways.of(pod.Status.PodIP)) == 0 {
		t.Errorf("status %+v", s.Status)
	}
	w.awaitGone(pod)
}

func TestDeletedSandbox(t *testing.T) {
	w := newWorld(t)
	w.pool("p", 1, 0)
	w.await("p", v1alpha1.PodIdle, 1)
	s, pod := w.running("p")
	w.gateways.setAway(true)
	if err := w.c.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s = w.awaitSandbox(s, v1alpha1.SandboxEnding)
	if s.Spec.End.Reason != v1alpha1.EndDeleted {
		t.Errorf("end %+v", s.Spec.End)
	}
	w.awaitGone(pod)
	never(t, time.Second, "the record went before its fence", func() bool { return w.sandbox(s.Name) == nil })
	w.gateways.setAway(false)
	s = w.awaitSandbox(s, v1alpha1.SandboxEnded)
	w.awaitSandbox(s, "")
	if held := time.Since(s.Status.FencedAt.Time); held < addressCooldown {
		t.Errorf("the record went %v after its fence, want %v", held, addressCooldown)
	}
}

// TestEndBeforeTheClaimLands: the claim PATCH is still on its way when the
// sandbox ends.
func TestEndBeforeTheClaimLands(t *testing.T) {
	w := newWorld(t)
	w.pool("p", 1, 0)
	pod := w.await("p", v1alpha1.PodIdle, 1)[0]
	s := w.newSandbox("p", &pod)
	if err := writes.EndSandbox(t.Context(), w.c, s.Name, v1alpha1.EndCanceled, ""); err != nil {
		t.Fatal(err)
	}
	ended := w.awaitSandbox(s, v1alpha1.SandboxEnded)
	err := w.c.Patch(t.Context(), pod.DeepCopy(), claimPatch(s, v1alpha1.PodRunning).Build())
	if !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err) {
		t.Errorf("the late claim got %v, want it refused", err)
	}
	if ended.Status.Address != "" || ended.Status.FencedAt != nil || len(w.gateways.of(pod.Status.PodIP)) != 0 {
		t.Errorf("a pod that was never claimed left a fence: %+v", ended.Status)
	}
	w.awaitGone(&pod)
}

func TestEndAt(t *testing.T) {
	w := newWorld(t)
	w.pool("p", 1, 0)
	w.await("p", v1alpha1.PodIdle, 1)
	s, _ := w.running("p") // first, for that takes longer than two seconds on a busy machine
	if err := w.setEndAt(t.Context(), s.Name, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	at := w.sandbox(s.Name).Spec.Timeouts.EndAt
	s = w.awaitSandbox(s, v1alpha1.SandboxEnded)
	if s.Spec.End.Reason != v1alpha1.EndEndAt || s.Spec.End.At.Sub(at.Time).Abs() > time.Second {
		t.Errorf("ended at %v, want %v: %+v", s.Spec.End.At, at, s.Spec.End)
	}
}

// never fails the test if bad holds at any look within d.
func never(t testing.TB, d time.Duration, what string, bad func() bool) {
	t.Helper()
	end := time.After(d)
	for {
		began := time.Now()
		if bad() {
			t.Fatal(what)
		}
		select {
		case <-end:
			return
		case <-time.After(kubetest.Pause(100*time.Millisecond, time.Since(began), 0)):
		}
	}
}

// TestNoRecords: without a store a sandbox goes once its address is free again,
// and not before.
func TestNoRecords(t *testing.T) {
	w := newWorld(t, func(w *world) { w.options.NoRecords = true })
	w.pool("p", 1, 0)
	w.await("p", v1alpha1.PodIdle, 1)
	s, pod := w.running("p")
	w.gateways.setAway(true)
	if err := writes.EndSandbox(t.Context(), w.c, s.Name, v1alpha1.EndReleased, ""); err != nil {
		t.Fatal(err)
	}
	w.awaitGone(pod)
	never(t, time.Second, "the record went before its fence", func() bool { return w.sandbox(s.Name) == nil })
	w.gateways.setAway(false)
	s = w.awaitSandbox(s, v1alpha1.SandboxEnded)
	w.awaitSandbox(s, "")
	if held := time.Since(s.Status.FencedAt.Time); held < addressCooldown {
		t.Errorf("the record went %v after its fence, want %v", held, addressCooldown)
	}
}
