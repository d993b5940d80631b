package sandboxpool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/address"
	"github.com/sandlane/sandlane/reconcilers/internal/pausecount"
)

// lagging is a pool reconciler whose cache shows pods only when told to.
type lagging struct {
	*SandboxPoolReconciler
	t     *testing.T
	real  client.WithWatch
	cache []corev1.Pod
	// afterLook runs when the pods were looked at.
	afterLook func()
	clock     *clocktesting.FakePassiveClock
	mu        sync.Mutex // guards the counts: creations run side by side
	creates   int
	deletes   int
}

var key = types.NamespacedName{Namespace: "n", Name: "p"}

func newLagging(t *testing.T, replicas int32) *lagging {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	l := &lagging{t: t}
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "pool"}}
	pool.Spec.Replicas = replicas
	pool.Spec.Template = &v1alpha1.SandboxTemplateSpec{Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "i"}}},
	}}
	l.real = fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool).WithStatusSubresource(pool).
		WithIndex(&v1alpha1.Sandbox{}, address.IndexAddress, func(o client.Object) []string { return []string{o.(*v1alpha1.Sandbox).Status.Address} }).
		WithIndex(&v1alpha1.Sandbox{}, pausecount.IndexPool, pausecount.PoolsOf).Build()
	l.clock = clocktesting.NewFakePassiveClock(now)
	l.SandboxPoolReconciler = &SandboxPoolReconciler{Scheme: scheme, Ledger: address.NewLedger(nil, 0), Clock: l.clock}
	l.Client = interceptor.NewClient(l.real, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if pods, ok := list.(*corev1.PodList); ok {
				var o client.ListOptions
				ip, byAddress := o.ApplyOptions(opts).FieldSelector.RequiresExactMatch(address.IndexAddress)
				pods.Items = nil
				for i := range l.cache {
					if p := &l.cache[i]; !byAddress || slices.Contains(address.Shows(p), ip) {
						pods.Items = append(pods.Items, *p.DeepCopy())
					}
				}
				return nil
			}
			return c.List(ctx, list, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*v1alpha1.SandboxTemplate); ok && l.afterLook != nil {
				l.afterLook()
			}
			return c.Get(ctx, k, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.creates++ // the fake client sets neither UID nor time
			o.SetUID(types.UID(fmt.Sprint(l.creates)))
			o.SetCreationTimestamp(metav1.NewTime(l.clock.Now()))
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return asServer(c.Patch(ctx, o, p, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			l.mu.Lock()
			l.deletes++
			l.mu.Unlock()
			return c.Delete(ctx, o, opts...)
		},
	})
	l.expectations = NewPoolExpectations(nil)
	l.backoff = newCreationBackoff(l.now)
	l.running.runs = map[types.UID]*hookRun{}
	l.rule = &address.Rule{Cache: l.Client, Ledger: l.Ledger}
	return l
}

// asServer turns the fake client's error of a failed test into the API server's.
func asServer(err error) error {
	if err != nil && strings.Contains(err.Error(), "test failed") {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Code: 422, Message: err.Error()}}
	}
	return err
}

func (l *lagging) reconcile(times int) {
	l.t.Helper()
	for range times {
		if _, err := l.Reconcile(l.t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			l.t.Fatal(err)
		}
	}
}

func newQueue(tb testing.TB) queue {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	tb.Cleanup(q.ShutDown)
	return q
}

// catchUp lets the cache show everything, and its events arrive. It returns the
// cache.
func (l *lagging) catchUp() []corev1.Pod {
	l.t.Helper()
	var pods corev1.PodList
	if err := l.real.List(l.t.Context(), &pods); err != nil {
		l.t.Fatal(err)
	}
	handler, ctx := l.podHandler(), l.t.Context()
	q := newQueue(l.t)
	before := map[string]*corev1.Pod{}
	for i := range l.cache {
		before[l.cache[i].Name] = &l.cache[i]
	}
	l.cache = pods.Items
	for i := range pods.Items {
		p := &pods.Items[i]
		if was := before[p.Name]; was != nil {
			handler.Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: p}, q)
		} else {
			handler.Create(ctx, event.CreateEvent{Object: p}, q)
		}
		delete(before, p.Name)
	}
	for _, p := range before {
		handler.Delete(ctx, event.DeleteEvent{Object: p}, q)
	}
	return l.cache
}

// allIdle turns the pods that the API has idle, as if they had become Ready.
func (l *lagging) allIdle() {
	l.t.Helper()
	var pods corev1.PodList
	if err := l.real.List(l.t.Context(), &pods); err != nil {
		l.t.Fatal(err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		p.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodIdle)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if err := l.real.Update(l.t.Context(), p); err != nil {
			l.t.Fatal(err)
		}
	}
}

func keyOf(pod *corev1.Pod) client.ObjectKey { return client.ObjectKeyFromObject(pod) }

func (l *lagging) scaleTo(replicas int32) {
	l.t.Helper()
	l.change(func(p *v1alpha1.SandboxPool) { p.Spec.Replicas = replicas })
}

func TestLaggingCacheNeitherOvershootsNorOscillates(t *testing.T) {
	l := newLagging(t, 7)
	for _, want := range []int{1, 3, 7} { // slow start, by pods that turned idle
		l.reconcile(5)
		if l.creates != want {
			t.Fatalf("%d creates while the cache does not show them, want %d", l.creates, want)
		}
		l.catchUp()
		l.reconcile(5)
		if l.creates != want {
			t.Fatalf("%d creates before the pods are Ready, want %d", l.creates, want)
		}
		l.allIdle()
		l.catchUp()
	}
	l.reconcile(5)
	if l.creates != 7 || l.deletes != 0 {
		t.Fatalf("%d creates, %d deletes after the cache caught up, want 7 and 0", l.creates, l.deletes)
	}
	l.scaleTo(2)
	l.reconcile(5)
	l.catchUp()
	l.reconcile(5)
	if l.deletes != 0 {
		t.Fatalf("%d deletes of protected pods", l.deletes)
	}
	l.clock.SetTime(l.clock.Now().Add(protectedFor))
	l.reconcile(5)
	if l.deletes != 5 {
		t.Fatalf("%d deletes while the cache shows none of them, want 5", l.deletes)
	}
	l.catchUp()
	l.reconcile(1)
	if l.creates != 7 || l.deletes != 5 {
		t.Errorf("%d creates, %d deletes in all, want 7 and 5", l.creates, l.deletes)
	}
}

// TestEventsBetweenTheLookAndTheDecision: the watch shows the pods that were made
// just after they were looked for.
func TestEventsBetweenTheLookAndTheDecision(t *testing.T) {
	l := newLagging(t, 1)
	l.change(func(p *v1alpha1.SandboxPool) {
		p.Spec.Template, p.Spec.TemplateRef = nil, &v1alpha1.TemplateRef{Name: "t"}
	})
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "i"}}
	if err := l.real.Create(t.Context(), template); err != nil {
		t.Fatal(err)
	}
	l.reconcile(1)
	l.afterLook = func() { l.afterLook = nil; l.catchUp() }
	l.reconcile(1)
	if l.creates != 1 {
		t.Errorf("%d creates, want 1: an old look was taken for a new one", l.creates)
	}
}

// TestScaleDownThatIsTakenBack: a pod that was picked is picked no more, and is protected
// anew when it is picked later.
func TestScaleDownThatIsTakenBack(t *testing.T) {
	l := newLagging(t, 1)
	l.reconcile(1)
	l.allIdle()
	marked := func() bool {
		l.catchUp()
		_, ok := l.cache[0].Annotations[v1alpha1.AnnotationScaleDownProtected]
		return ok
	}
	l.catchUp()
	l.scaleTo(0)
	l.reconcile(1)
	if !marked() {
		t.Fatal("the pod is not marked")
	}
	l.scaleTo(1)
	l.clock.SetTime(l.clock.Now().Add(protectedFor))
	l.reconcile(1)
	if marked() || l.deletes != 0 {
		t.Fatal("the mark is left, or the pod deleted, though it is wanted again")
	}
	l.scaleTo(0)
	l.reconcile(1)
	if !marked() || l.deletes != 0 {
		t.Error("picked again, the pod is not protected anew")
	}
}

// TestScaleDownMissesAClaimItHasNotSeen: the pod was claimed after the view that
// the cache still shows.
func TestScaleDownMissesAClaimItHasNotSeen(t *testing.T) {
	l := newLagging(t, 1)
	l.reconcile(1)
	l.allIdle()
	l.catchUp()
	l.scaleTo(0)
	l.reconcile(1)
	l.catchUp() // with the mark
	pod := l.cache[0].DeepCopy()
	pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodRunning)
	pod.Annotations[v1alpha1.AnnotationClaim] = "c"
	if err := l.real.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	l.clock.SetTime(l.clock.Now().Add(protectedFor))
	l.reconcile(2)
	if err := l.real.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.DeletionTimestamp != nil {
		t.Errorf("the claimed pod was deleted: %v, %v", pod.DeletionTimestamp, err)
	}
	if l.deletes == 0 {
		t.Error("nothing was tried")
	}
}
