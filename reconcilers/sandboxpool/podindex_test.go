package sandboxpool

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/address"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
)

// cached answers as a manager's client does, whose cache holds one pool and its
// sandboxes: reads are copies, writes are taken.
type cached struct {
	client.Client
	pool *v1alpha1.SandboxPool
}

func (c cached) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if pool, ok := o.(*v1alpha1.SandboxPool); ok {
		c.pool.DeepCopyInto(pool)
	}
	return nil
}

// List finds nothing: no sandbox is paused.
func (cached) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (c cached) Status() client.SubResourceWriter { return taken{} }

type taken struct{ client.SubResourceWriter }

func (taken) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return nil
}

func servingPod(pool *v1alpha1.SandboxPool, hash string, i int) *corev1.Pod {
	v := newTestPod(v1alpha1.PodRunning)
	p := v.pod
	p.Name, p.UID = fmt.Sprintf("p-%d", i), types.UID(fmt.Sprintf("u-%d", i))
	p.Labels[v1alpha1.LabelPool], p.Labels[v1alpha1.LabelSandboxID] = "p", fmt.Sprintf("s-%d", i)
	p.Annotations[v1alpha1.AnnotationClaim] = fmt.Sprintf("c-%d", i)
	p.Annotations[v1alpha1.AnnotationTemplateHash] = hash
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("SandboxPool"))}
	return p
}

// large is a reconciler of a pool with that many claimed pods and a stock of a
// hundred, and one event of one of its pods.
func large(tb testing.TB, claimed int) (podEvent func()) {
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "pool"}}
	pool.Spec.Replicas = 100
	pool.Spec.Template = &v1alpha1.SandboxTemplateSpec{Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "i"}}},
	}}
	tpl, err := podtemplate.Render(pool.Spec.Template, "")
	if err != nil {
		tb.Fatal(err)
	}
	r := &SandboxPoolReconciler{Client: cached{pool: pool}, Ledger: address.NewLedger(nil, 0)}
	r.expectations, r.backoff = NewPoolExpectations(nil), newCreationBackoff(r.now)
	r.running.runs = map[types.UID]*hookRun{}
	handler, q := r.podHandler(), newQueue(tb)
	for i := range claimed + 100 {
		p := servingPod(pool, tpl.Hash, i)
		if i >= claimed {
			p.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodIdle)
			delete(p.Labels, v1alpha1.LabelSandboxID)
			delete(p.Annotations, v1alpha1.AnnotationClaim)
		}
		handler.Create(tb.Context(), event.CreateEvent{Object: p}, q)
	}
	p := servingPod(pool, tpl.Hash, 1)
	return func() {
		handler.Update(tb.Context(), event.UpdateEvent{ObjectOld: p, ObjectNew: p}, q)
		if _, err := r.Reconcile(tb.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			tb.Fatal(err)
		}
	}
}

// TestPodEventOfALargePool: what one pod's event costs does not grow with the
// claimed pods of its pool.
func TestPodEventOfALargePool(t *testing.T) {
	podEvent := large(t, 10_000)
	podEvent()
	const events, most = 10, 200 << 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range events {
		podEvent()
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / events; got > most {
		t.Errorf("%d bytes for one pod's event, at most %d", got, most)
	}
}

func BenchmarkPodEvent(b *testing.B) {
	for _, claimed := range []int{10, 10_000} {
		b.Run(fmt.Sprint(claimed), func(b *testing.B) {
			podEvent := large(b, claimed)
			b.ReportAllocs()
			for b.Loop() {
				podEvent()
			}
		})
	}
}

func TestRoster(t *testing.T) {
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "pool"}}
	var r podIndex
	look := func(what string, owner types.UID, settled map[string]int, open map[string]bool) {
		t.Helper()
		pods, counted := r.split(key, owner)
		found := map[string]bool{}
		for _, p := range pods {
			found[p.pod.Name] = p.quiet
		}
		if !maps.Equal(found, open) || !maps.Equal(counted, settled) {
			t.Errorf("%s: open (quiet) %v and settled %v, want %v and %v", what, found, counted, open, settled)
		}
	}
	look("nothing", "pool", nil, nil)
	r.observe(key, servingPod(pool, "h", 1))
	r.observe(key, servingPod(pool, "h", 2))
	r.observe(key, servingPod(pool, "old", 3))
	idle := newTestPod(v1alpha1.PodIdle).pod
	idle.Name, idle.OwnerReferences = "idle", servingPod(pool, "h", 0).OwnerReferences
	r.observe(key, idle)
	unready := idle.DeepCopy()
	unready.Name, unready.Status.Conditions[0].Status = "unready", corev1.ConditionFalse
	r.observe(key, unready)
	look("all well", "pool", map[string]int{"h": 2, "old": 1}, map[string]bool{"idle": true, "unready": false})
	look("no pool", "", nil, map[string]bool{"p-1": false, "p-2": false, "p-3": false, "idle": false, "unready": false})
	look("another pool of the name", "other", nil, map[string]bool{"p-1": false, "p-2": false, "p-3": false, "idle": false, "unready": false})

	for what, change := range map[string]func(*corev1.Pod){
		"it stops":       func(p *corev1.Pod) { p.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodStopping) },
		"it was evicted": func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"it is deleted":  func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now },
		"it restarted":   func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ },
		"its address":    func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9" },
	} {
		p := servingPod(pool, "h", 1)
		change(p)
		r.observe(key, p)
		look(what, "pool", map[string]int{"h": 1, "old": 1}, map[string]bool{"p-1": false, "idle": true, "unready": false})
	}
	p := servingPod(pool, "h", 1)
	now := metav1.Now()
	p.DeletionTimestamp, p.Finalizers = &now, nil
	r.observe(key, p)
	look("it is let go", "pool", map[string]int{"h": 1, "old": 1}, map[string]bool{"p-1": true, "idle": true, "unready": false})

	for _, name := range []string{"p-1", "p-2", "p-3", "idle", "unready", "never seen"} {
		r.gone(key, name)
	}
	if len(r.pools) != 0 {
		t.Errorf("remembers %v", r.pools)
	}
}
