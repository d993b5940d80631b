package schedule

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// fleet is gateways on one pool of a real API server, each with a view of its
// own that a watch feeds, and a witness that sees every claim there ever was.
type fleet struct {
	t    *testing.T
	c    client.WithWatch
	ns   string
	sets []*Set
	regs []*prometheus.Registry
	made int // pods
	ctx  context.Context
	runs sync.WaitGroup

	mu     sync.Mutex
	claims map[string]map[string]bool // claim IDs seen, by pod
	pods   map[string]string          // pods that carried it, by claim ID
}

func newFleet(t *testing.T, gateways int) *fleet {
	t.Helper()
	f := &fleet{
		t: t, c: kubetest.Client(t), ns: kubetest.Namespace(t),
		claims: map[string]map[string]bool{}, pods: map[string]string{},
	}
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "pool"}}
	pool.Spec.TemplateRef = &v1alpha1.TemplateRef{Name: "none"}
	if err := f.c.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.ctx = ctx
	t.Cleanup(func() { cancel(); f.runs.Wait() })
	f.follow(f.witness)
	for i := range gateways {
		reg := prometheus.NewRegistry()
		set := NewSet(f.c, WithMetrics(NewMetrics(reg)), WithSeed(uint64(i)))
		set.SetPickOffset(i, gateways)
		set.PoolChanged(f.ns, "pool", true)
		t.Cleanup(set.Shutdown)
		f.follow(func(pod *corev1.Pod, gone bool) {
			if gone {
				set.Forget(f.ns, "pool", pod.UID)
			} else {
				set.Offer(pod)
			}
		})
		f.sets, f.regs = append(f.sets, set), append(f.regs, reg)
	}
	return f
}

// follow feeds the pod events of the namespace, through a watch that is made anew
// when an overloaded API server drops it.
func (f *fleet) follow(see func(pod *corev1.Pod, gone bool)) {
	clients, err := kubernetes.NewForConfig(kubetest.Config(f.t))
	if err != nil {
		f.t.Fatal(err)
	}
	pods := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(f.ns)).Core().V1().Pods().Informer()
	typed := func(gone bool) func(any) {
		return func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			see(obj.(*corev1.Pod), gone)
		}
	}
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: typed(false), UpdateFunc: func(_, now any) { typed(false)(now) }, DeleteFunc: typed(true),
	}); err != nil {
		f.t.Fatal(err)
	}
	f.runs.Go(func() { pods.RunWithContext(f.ctx) })
}

func (f *fleet) witness(pod *corev1.Pod, _ bool) {
	claim := pod.Annotations[v1alpha1.AnnotationClaim]
	if claim == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.claims[pod.Name] == nil {
		f.claims[pod.Name] = map[string]bool{}
	}
	f.claims[pod.Name][claim] = true
	if other := f.pods[claim]; other != "" && other != pod.Name {
		f.t.Errorf("claim %s is on %s and on %s", claim, other, pod.Name)
	}
	f.pods[claim] = pod.Name
}

// warm makes idle pods, eight at a time.
func (f *fleet) warm(n int) {
	f.t.Helper()
	const workers = 8
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				realIdle(f.t, f.c, f.ns, fmt.Sprintf("p%03d", f.made+i))
			}
		})
	}
	wg.Wait()
	f.made += n
	if f.t.Failed() {
		f.t.FailNow()
	}
}

func (f *fleet) gateway(i int) *PoolScheduler {
	s, ok := f.sets[i].Get(f.ns, "pool")
	if !ok {
		f.t.Fatalf("gateway %d has no scheduler", i)
	}
	return s
}

// sees waits until every gateway has n pods in its queue.
func (f *fleet) sees(n int) {
	f.t.Helper()
	kubetest.Eventually(f.t, "the gateways to see the stock", func() error {
		for i := range f.sets {
			if got := f.counts(i)["ready_pods"]; got != float64(n) {
				return fmt.Errorf("gateway %d has %v of %d", i, got, n)
			}
		}
		return nil
	})
}

// ask sends n requests at once, spread over the gateways given.
func (f *fleet) ask(n int, gateways ...int) []*ClaimRequest {
	f.t.Helper()
	all := make([]*ClaimRequest, n)
	for i := range all {
		all[i] = &ClaimRequest{
			SandboxID: fmt.Sprint("s", i), Deadline: time.Now().Add(2 * time.Minute), ResultCh: newResults(2),
		}
		if !f.gateway(gateways[i%len(gateways)]).Enqueue(all[i]) {
			f.t.Fatalf("request %d was refused", i)
		}
	}
	return all
}

// take collects results until n requests have been answered, and checks that
// each has a pod of its own. It returns the requests that still wait.
func (f *fleet) take(requests []*ClaimRequest, n int, served map[string]string) (waiting []*ClaimRequest) {
	f.t.Helper()
	type answer struct {
		q   *ClaimRequest
		res ClaimResult
	}
	answers, enough := make(chan answer), make(chan struct{})
	var readers sync.WaitGroup
	for _, q := range requests {
		readers.Go(func() {
			select {
			case res := <-resultsOf(q):
				select {
				case answers <- answer{q, res}:
				case <-enough:
					q.ResultCh <- res
				}
			case <-enough:
			}
		})
	}
	got := map[*ClaimRequest]bool{}
	for range n {
		a := <-answers
		got[a.q] = true
		switch {
		case a.res.Err != nil:
			f.t.Errorf("request %s: %v", a.q.SandboxID, a.res.Err)
		case served[a.res.Pod.Name] != "":
			f.t.Errorf("pod %s serves %s and %s", a.res.Pod.Name, served[a.res.Pod.Name], a.q.SandboxID)
		default:
			served[a.res.Pod.Name] = a.q.SandboxID
		}
	}
	close(enough)
	readers.Wait()
	for _, q := range requests {
		if !got[q] {
			waiting = append(waiting, q)
		}
	}
	return waiting
}

// judge compares what requests were told with what the API server holds, and
// with every claim that was ever on a pod.
func (f *fleet) judge(served map[string]string) {
	f.t.Helper()
	list := &corev1.PodList{}
	if err := f.c.List(f.t.Context(), list, client.InNamespace(f.ns)); err != nil {
		f.t.Fatal(err)
	}
	bySandbox := map[string]string{}
	for i := range list.Items {
		pod := &list.Items[i]
		id := pod.Labels[v1alpha1.LabelSandboxID]
		if id != served[pod.Name] {
			f.t.Errorf("pod %s is on record for %q, and was given to %q", pod.Name, id, served[pod.Name])
		}
		if other := bySandbox[id]; id != "" && other != "" {
			f.t.Errorf("sandbox %s has pods %s and %s", id, other, pod.Name)
		}
		bySandbox[id] = pod.Name
	}
	kubetest.Eventually(f.t, "the witness to see every claim", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.claims) < len(served) {
			return fmt.Errorf("%d of %d", len(f.claims), len(served))
		}
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for pod, claims := range f.claims {
		if len(claims) > 1 {
			f.t.Errorf("double claim: pod %s carried %v", pod, slices.Collect(maps.Keys(claims)))
		}
	}
}

// counts are a gateway's metrics, by short name and label.
func (f *fleet) counts(gateway int) map[string]float64 {
	f.t.Helper()
	families, err := f.regs[gateway].Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		name := strings.TrimPrefix(family.GetName(), "sandlane_schedule_")
		for _, m := range family.Metric {
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			switch family.GetType() {
			case dto.MetricType_HISTOGRAM:
				out[name] = float64(m.GetHistogram().GetSampleCount())
			default:
				for _, l := range m.Label {
					if l.GetName() == "outcome" {
						out[name+" "+l.GetValue()] = value
					}
				}
				out[name] += value
			}
		}
	}
	return out
}

// all sums a metric over the gateways.
func (f *fleet) all(name string) (sum float64) {
	for i := range f.regs {
		sum += f.counts(i)[name]
	}
	return sum
}
