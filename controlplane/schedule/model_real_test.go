package schedule

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/faults"
	"github.com/sandlane/sandlane/test/kubetest"
)

const (
	// realWorlds run side by side: each waits most of the time.
	realWorlds = 12
	realSteps  = 3000
	// realLimit ends a run that never meets what it must.
	realLimit = 10 * time.Minute
	// realFewWorlds do one plan each in a short run.
	realFewWorlds = 6
	realFewSteps  = 100
)

// full says that tests take the time for what they leave out in a short run.
func full() bool { return os.Getenv("SANDLANE_MODEL") == "full" }

// onTheWire is what must befall enough claims below the client: answers and
// requests that the network loses, delays or reorders.
var onTheWire = map[string][]string{
	"wire: before": {"served"}, "wire: after": {"served"}, "wire: late": {"served"}, "wire: slow": {"served"},
}

// What TestModel asks for, of a real API server with real watches and in real
// time. Half of the calls meet a fault in an interceptor, and some of the writes
// that get through one in the HTTP transport (package test/faults). With
// SANDLANE_MODEL=full, as in `make test-all`, it goes on until each fault has met each
// outcome often enough; else each world does one plan, and the counts are left to
// TestModel.
// SANDLANE_SEED has the plans of an earlier run; what happens between them is the
// machine's.
func TestModelOnARealServer(t *testing.T) {
	seed := int(time.Now().UnixNano() % 1e9)
	if v := os.Getenv("SANDLANE_SEED"); v != "" {
		var err error
		if seed, err = strconv.Atoi(v); err != nil {
			t.Fatalf("SANDLANE_SEED: %v", err)
		}
	}
	worlds, steps, proof := realFewWorlds, realFewSteps, []map[string][]string(nil)
	if full() {
		worlds, steps, proof = realWorlds, realSteps, []map[string][]string{required, onTheWire}
	}
	namespaces := make(chan string, worlds)
	for range worlds {
		namespaces <- kubetest.Namespace(t)
	}
	began, total := time.Now(), newTally()
	var runs atomic.Int64
	var failed atomic.Bool
	var workers sync.WaitGroup
	for range worlds {
		workers.Go(func() {
			for again := true; again; again = full() && !failed.Load() && time.Since(began) < realLimit && len(total.missing(steps, proof...)) > 0 {
				n := int(runs.Add(1))
				w, err := newReal(t, <-namespaces, uint64(seed+n))
				if err != nil {
					t.Error(err)
					return
				}
				broken := plans(realOps, 100, 300).Example(seed+n).run(w, total)
				namespaces <- w.ns
				if broken = append(broken, w.trouble...); len(broken) > 0 {
					failed.Store(true)
					t.Errorf("run %d:\n%s", n, strings.Join(broken, "\n"))
				}
			}
		})
	}
	workers.Wait()
	t.Logf("SANDLANE_SEED=%d, %d runs in %v, %v", seed, runs.Load(), time.Since(began).Round(time.Second), total)
	if missing := total.missing(steps, proof...); len(missing) > 0 && !failed.Load() {
		t.Errorf("that proves too little:\n%s", strings.Join(missing, "\n"))
	}
}

// realOps leave enough stock and news for most requests to be served: each step costs
// time here.
var realOps = []weighted{
	{"claim", 24}, {"refill", 20}, {"cancel", 4}, {"end", 4}, {"delete pod", 14}, {"follow", 5},
	{"crash", 1}, {"deliver", 24}, {"drop watch", 4}, {"wait", 6}, {"busy", 1},
}

// realWorld is a namespace of a real API server that is empty at first.
type realWorld struct {
	ns     string
	direct client.WithWatch
	faulty client.Client
	wire   *faults.Transport

	mu      sync.Mutex
	trouble []string // with the API server itself; guarded by mu
}

func newReal(t *testing.T, ns string, seed uint64) (*realWorld, error) {
	w := &realWorld{ns: ns, direct: kubetest.Client(t)}
	cfg := kubetest.Config(t)
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	w.wire = faults.New(transport, wirePlan(seed))
	w.faulty, err = client.New(cfg, client.Options{
		Scheme: w.direct.Scheme(), Mapper: w.direct.RESTMapper(), HTTPClient: &http.Client{Transport: w.wire},
	})
	if err != nil {
		return nil, err
	}
	all := &corev1.Pod{}
	return w, errors.Join(
		w.direct.DeleteAllOf(context.Background(), all, client.InNamespace(ns), client.GracePeriodSeconds(0)),
		w.dropFinalizers(func(*corev1.Pod) bool { return true }))
}

// wirePlan strikes a third of the writes, and holds some others up: that is one
// fault of many otherwise.
func wirePlan(seed uint64) faults.Plan {
	const hold = 20 * time.Millisecond
	strike := faults.Random(seed, map[faults.Kind]float64{faults.Claim: 0.3, faults.Stop: 0.3}, hold)
	slow := faults.Random(seed+1, map[faults.Kind]float64{faults.Claim: 0.1}, hold)
	return func(w faults.Write) faults.Decision {
		if slow(w).Fault != faults.None {
			return faults.Decision{Fault: faults.Slow, Hold: hold}
		}
		return strike(w)
	}
}

func (*realWorld) pace() pace {
	return pace{
		slow: 300 * time.Millisecond, late: 400 * time.Millisecond, busy: 300 * time.Millisecond, ttl: time.Second,
		deadlines: []time.Duration{200 * time.Millisecond, 800 * time.Millisecond, 2 * time.Second, 4 * time.Second},
		waits:     []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond},
		shown:     30,
		slack:     10 * time.Second, // of a machine that does other things as well
	}
}

func (w *realWorld) namespace() string    { return w.ns }
func (w *realWorld) truth() client.Client { return w.direct }
func (*realWorld) pause()                 {}

func (w *realWorld) fail(doing string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble = append(w.trouble, fmt.Sprintf("%s: %v", doing, err))
}

// until waits for longer than anything should take.
func (w *realWorld) until(done func() bool) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(time.Minute); !done(); {
		select {
		case <-tick.C:
		case <-limit:
			return // the checks say what is wrong
		}
	}
}

func (w *realWorld) calm() {
	w.wire.Calm()
	w.wire.Flush()
}

// notes are the wire's faults that befell the request's writes before its answer.
func (w *realWorld) notes(q *asked) (all []string) {
	for _, s := range w.wire.Strikes() {
		if s.Sandbox == q.SandboxID && (q.at.IsZero() || s.At.Before(q.at)) {
			class, _, _ := strings.Cut(s.Fault.String(), ":")
			all = append(all, "wire: "+class)
		}
	}
	return all
}

// idle makes a pod; every other one is not gone before its finalizer is.
func (w *realWorld) idle(name string) {
	pod := idlePod(w.ns, name)
	pod.UID, pod.Status = "", corev1.PodStatus{}
	if name[len(name)-1]%2 == 0 {
		pod.Finalizers = []string{v1alpha1.FinalizerPod}
	}
	ctx := context.Background()
	if err := w.direct.Create(ctx, pod); err != nil {
		w.fail("making a pod", err)
		return
	}
	pod.Status.PodIP = pod.Annotations[v1alpha1.AnnotationAddress]
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	patch := fmt.Sprintf(`{"status":{"podIP":%q,"podIPs":[{"ip":%q}]}}`, pod.Status.PodIP, pod.Status.PodIP)
	if err := w.direct.Status().Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		w.fail("giving a pod its address", err)
	}
}

// remove deletes a pod. One with a finalizer goes the second time.
func (w *realWorld) remove(name string) bool {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	err := w.direct.Delete(context.Background(), pod, client.GracePeriodSeconds(0))
	if client.IgnoreNotFound(err) != nil {
		w.fail("deleting a pod", err)
	}
	if err := w.dropFinalizers(func(p *corev1.Pod) bool {
		return p.Name == name && p.DeletionTimestamp != nil && time.Since(p.DeletionTimestamp.Time) > time.Second
	}); err != nil {
		w.fail("releasing a pod", err)
	}
	return err == nil
}

// dropFinalizers takes the finalizers of some pods that are deleted.
func (w *realWorld) dropFinalizers(which func(*corev1.Pod) bool) error {
	for _, pod := range w.pods() {
		if pod.DeletionTimestamp == nil || !which(pod) || !controllerutil.ContainsFinalizer(pod, v1alpha1.FinalizerPod) {
			continue
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := w.direct.Patch(context.Background(), pod, patch); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func (w *realWorld) pods() []*corev1.Pod {
	list := w.list()
	all := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all
}

func (w *realWorld) list() *corev1.PodList {
	list := &corev1.PodList{}
	if err := w.direct.List(context.Background(), list, client.InNamespace(w.ns)); err != nil {
		w.fail("listing the pods", err)
	}
	return list
}

// through is a client whose calls the model answers.
func (w *realWorld) through(answer func(call) error) client.Client {
	return intercepted{w.faulty, answer}
}

// intercepted lets answer decide on each call. A write may be made after its client
// has given up, so it has a context of its own.
type intercepted struct {
	client.Client
	answer func(call) error
}

func (c intercepted) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.answer(call{verb: "get", pod: key.Name, apply: func() error { return c.Client.Get(ctx, key, o, opts...) }})
}

func (c intercepted) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	send := func(data []byte) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
		defer cancel()
		return c.Client.Patch(ctx, o, client.RawPatch(p.Type(), data), opts...)
	}
	spoilt := `,{"op":"add","path":"/spec/containers/0/image","value":" no image "}]`
	return c.answer(call{
		verb: verbOf(o, data), pod: o.GetName(), apply: func() error { return send(data) },
		invalid: func() error { return send([]byte(strings.TrimSuffix(string(data), "]") + spoilt)) },
	})
}
