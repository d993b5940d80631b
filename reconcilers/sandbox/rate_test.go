package sandbox

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/bubble"
)

// rounds is a Fencer that asks in rounds as the control plane's client does: what
// it is given during one goes into the next, and each takes as long as the slowest
// gateway.
type rounds struct {
	slowest time.Duration
	mu      sync.Mutex
	next    chan struct{} // closed when the next round is over; nil if none is asked for
	running bool
}

func (r *rounds) Fence(ctx context.Context, _ netip.Addr, _ uint64) error {
	r.mu.Lock()
	if r.next == nil {
		r.next = make(chan struct{})
	}
	over := r.next
	if !r.running {
		r.running = true
		go r.run()
	}
	r.mu.Unlock()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *rounds) run() {
	for {
		r.mu.Lock()
		over := r.next
		r.next = nil
		r.running = over != nil
		r.mu.Unlock()
		if over == nil {
			return
		}
		time.Sleep(r.slowest)
		close(over)
	}
}

// TestFiveHundredEndsASecond: a slow gateway makes each end wait for it, and none
// for another.
func TestFiveHundredEndsASecond(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const ends, each, slowest = 250, time.Second / 500, 400 * time.Millisecond
		var objects []client.Object
		for i := range ends {
			s, pod := runningOne()
			s.Name, s.UID, pod.Name, pod.UID = fmt.Sprint("s", i), types.UID(fmt.Sprint("s", i)), fmt.Sprint("p", i), types.UID(fmt.Sprint("p", i))
			s.Spec.Binding.ClaimID, s.Spec.Binding.PodName, s.Spec.Binding.PodUID = fmt.Sprint("c", i), pod.Name, string(pod.UID)
			s.Status.AddressClaim = s.Spec.Binding.ClaimID
			pod.Labels[v1alpha1.LabelSandboxID], pod.Annotations[v1alpha1.AnnotationClaim] = s.Name, s.Spec.Binding.ClaimID
			objects = append(objects, s, pod)
		}
		g := newRig(t, objects...)
		g.Clock, g.Fencer = clock.RealClock{}, &rounds{slowest: slowest}
		g.Client = interceptor.NewClient(g.Client.(client.WithWatch), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return nil // no strays; the fake client has no indexes worth the name
			},
		})
		g.fences.clock = g.Clock
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		if err := g.fences.run(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		var workers sync.WaitGroup
		for range DefaultWorkers {
			workers.Go(func() {
				for {
					request, stop := queue.Get()
					if stop {
						return
					}
					result, err := g.Reconcile(t.Context(), request)
					if err != nil {
						t.Error(err)
					}
					if result.RequeueAfter > 0 {
						queue.AddAfter(request, result.RequeueAfter)
					}
					queue.Done(request)
				}
			})
		}
		for i := range ends {
			queue.Add(ctrl.Request{NamespacedName: types.NamespacedName{Name: fmt.Sprint("s", i)}})
			time.Sleep(each)
		}
		time.Sleep(2*slowest + 100*time.Millisecond) // the round on its way, and its own
		synctest.Wait()
		var list v1alpha1.SandboxList
		if err := g.APIReader.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		left := 0
		for i := range list.Items {
			if list.Items[i].Status.Phase != v1alpha1.SandboxEnded && list.Items[i].DeletionTimestamp == nil {
				left++
			}
		}
		if left > 0 {
			t.Errorf("%d of %d ends are not carried out a second after the last", left, ends)
		}
		queue.ShutDown()
		workers.Wait()
		var pods corev1.PodList
		if err := g.APIReader.List(t.Context(), &pods); err != nil || len(pods.Items) != ends {
			t.Errorf("%d pods, %v", len(pods.Items), err)
		}
	})
}
