package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// realIdle makes an idle pod on a real API server.
func realIdle(t testing.TB, c client.Client, ns, name string) *corev1.Pod {
	t.Helper()
	pod := idlePod(ns, name)
	pod.UID = ""
	pod.Status = corev1.PodStatus{}
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.PodIP = pod.Annotations[v1alpha1.AnnotationAddress]
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	if err := c.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func realClaim(pod *corev1.Pod, id string) Claim {
	return Claim{
		SandboxID: id, ClaimID: NewClaimID(), Namespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID,
		Phase: v1alpha1.PodRunning,
	}
}

func TestApplyClaim(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	ctx := t.Context()
	apply := func(claim Claim, want error) *corev1.Pod {
		t.Helper()
		pod, err := ApplyClaim(ctx, c, claim)
		if !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Fatalf("got %v, want %v", err, want)
		}
		return pod
	}
	p1 := realIdle(t, c, ns, "p1")
	mine := realClaim(p1, "a")
	if pod := apply(mine, nil); !mine.On(pod) || v1alpha1.RoutableAddress(pod) == "" {
		t.Errorf("claimed pod has labels %v, annotations %v", pod.Labels, pod.Annotations)
	}
	first := apply(mine, nil) // again: done already
	if again := apply(mine, nil); again.ResourceVersion != first.ResourceVersion {
		t.Error("a claim that was done already wrote to the pod")
	}
	apply(realClaim(p1, "b"), ErrPodTaken)

	p2 := realIdle(t, c, ns, "p2")
	other := realClaim(p2, "b") // meant for an earlier pod of that name
	other.PodUID = "other"
	apply(other, ErrPodGone)
	other.PodName = "none"
	apply(other, ErrPodGone)
	bad := realClaim(p2, "c")
	bad.Images = []ImageChange{{Index: 0, Container: "main", Image: " not an image "}}
	apply(bad, ErrInvalid)
	bad.Images = []ImageChange{{Index: 1, Container: "main", Image: "x"}}
	apply(bad, ErrRefused) // the pod is idle, but its shape is not what was thought
	good := realClaim(p2, "c")
	good.Phase, good.Images = v1alpha1.PodStarting, []ImageChange{{Index: 1, Container: "side", Image: "x"}}
	if pod := apply(good, nil); pod.Spec.Containers[1].Image != "x" || v1alpha1.PhaseOf(pod) != v1alpha1.PodStarting {
		t.Errorf("claimed pod: %+v", pod.Spec.Containers)
	}

	p3 := realIdle(t, c, ns, "p3")
	if err := StopUnclaimed(ctx, c, realClaim(p3, "d")); err != nil {
		t.Fatal(err)
	}
	apply(realClaim(p3, "d"), ErrPodTaken)
	if err := StopUnclaimed(ctx, c, mine); !errors.Is(err, ErrRefused) {
		t.Errorf("stopping a claimed pod as unclaimed: %v", err)
	}
	if err := StopClaimed(ctx, c, realClaim(p1, "a")); !errors.Is(err, ErrRefused) {
		t.Errorf("stopping a pod of another claim: %v", err)
	}
	if err := StopClaimed(ctx, c, mine); err != nil {
		t.Fatal(err)
	}
	apply(mine, ErrClaimOver)
}

func TestDeletedPodIsNotClaimed(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	pod := realIdle(t, c, ns, "p1")
	pod.Finalizers = []string{v1alpha1.FinalizerPod}
	if err := c.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := ApplyClaim(t.Context(), c, realClaim(pod, "a")); !errors.Is(err, ErrPodTaken) {
		t.Errorf("got %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.Annotations[v1alpha1.AnnotationClaim] != "" {
		t.Errorf("the pod being deleted has annotations %v (%v)", pod.Annotations, err)
	}
}

// churn changes every pod's status until the test ends.
func churn(t *testing.T, c client.Client, pods []*corev1.Pod) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	const workers = 4
	for w := range workers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				for i := w; i < len(pods) && ctx.Err() == nil; i += workers {
					pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pods[i].Namespace, Name: pods[i].Name}}
					patch := fmt.Sprintf(`{"status":{"message":"tick %d"}}`, n)
					err := c.Status().Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch)))
					if err != nil && ctx.Err() == nil {
						t.Errorf("churn: %v", err)
						return
					}
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// Two gateways share one pool of 100 pods whose status changes all the time:
// 150 requests get 100 different pods, and no claim is lost from any of them.
func TestTwoGatewaysShareAPoolUnderChurn(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	const podCount, requests = 100, 150
	var pods []*corev1.Pod
	for i := range podCount {
		pods = append(pods, realIdle(t, c, ns, fmt.Sprint("p", i)))
	}
	churn(t, c, pods)
	var gateways []*PoolScheduler
	var runs sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for seed := range uint64(2) {
		s := NewPoolScheduler(ns, "pool", "", "", c, WithSeed(seed))
		for _, p := range pods {
			s.Offer(p)
		}
		runs.Go(func() { s.Run(ctx) })
		gateways = append(gateways, s)
	}
	defer func() { cancel(); runs.Wait() }()
	asking, enough := context.WithCancel(context.Background())
	defer enough()
	results := make(chan ClaimResult, requests)
	for i := range requests {
		if !gateways[i%2].Enqueue(&ClaimRequest{
			Ctx: asking, SandboxID: fmt.Sprint("s", i), Deadline: time.Now().Add(time.Minute), ResultCh: results,
		}) {
			t.Fatal("queue full")
		}
	}
	served := make(map[types.UID]*corev1.Pod)
	for range requests {
		switch res := <-results; {
		case errors.Is(res.Err, context.Canceled) && len(served) == podCount:
		case res.Err != nil:
			t.Error(res.Err)
		case served[res.Pod.UID] != nil:
			t.Errorf("pod %s serves two", res.Pod.Name)
		default:
			served[res.Pod.UID] = res.Pod
		}
		if len(served) == podCount {
			enough()
		}
	}
	if len(served) != podCount {
		t.Errorf("%d of %d pods were given out", len(served), podCount)
	}
	list := &corev1.PodList{}
	if err := c.List(t.Context(), list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		was := served[pod.UID]
		if was == nil {
			continue
		}
		claim := Claim{
			SandboxID: was.Labels[v1alpha1.LabelSandboxID], ClaimID: was.Annotations[v1alpha1.AnnotationClaim], PodUID: pod.UID,
		}
		if !claim.On(pod) || v1alpha1.PhaseOf(pod) != v1alpha1.PodRunning {
			t.Errorf("pod %s lost its claim: labels %v, annotations %v", pod.Name, pod.Labels, pod.Annotations)
		}
	}
}

func TestPoolIsMarkedScaleUpPending(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool"}}
	pool.Spec.TemplateRef = &v1alpha1.TemplateRef{Name: "none"}
	if err := c.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s := NewPoolScheduler(ns, "pool", "", "", c)
	if err := s.markPending(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse(time.RFC3339Nano, pool.Annotations[v1alpha1.AnnotationScaleUpPending]); err != nil {
		t.Error(err)
	}
}
