package activation

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// losesItsFirstPod is a client that loses the first claim on its way to a pod: the
// scheduler stops the pod.
func (w *world) losesItsFirstPod() client.Client {
	var claims atomic.Int64
	return faulty(w.c, func(o client.Object, call func() error) error {
		if _, pod := o.(*corev1.Pod); pod && claims.Add(1) == 1 {
			return errors.New("connection reset by peer")
		}
		return call()
	})
}

// A request that lost the pod it was given does not wait for that member alone.
func TestRequestThatLostItsPodMoves(t *testing.T) {
	for name, change := range map[string]func(w *world, g *gateway, drain func()){
		"another member has a pod": func(w *world, _ *gateway, _ func()) { w.idleOf("b", 1) },
		"its member drains":        func(w *world, _ *gateway, drain func()) { drain(); w.idleOf("b", 1) },
		"its pool goes":            func(w *world, g *gateway, _ func()) { g.set.PoolChanged(w.ns, "a", false); w.idleOf("b", 1) },
	} {
		for _, isNew := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, new=%v", name, isNew), func(t *testing.T) { lostPodMoves(t, isNew, change) })
		}
	}
}

func lostPodMoves(t *testing.T, isNew bool, change func(w *world, g *gateway, drain func())) {
	w := newWorld(t)
	w.idleOf("a", 1)
	g := w.envGatewayOn(w.losesItsFirstPod())
	var drains atomic.Bool
	before := g.o.Members
	g.o.Members = func(namespace, env string) []routing.Member {
		all := before(namespace, env)
		if drains.Load() && len(all) == 2 {
			return all[:1]
		}
		return all
	}
	r := w.byEnv(kubetest.Name("s"), 40*time.Second)
	if r.New, r.MayClaim = isNew, true; !isNew {
		w.make(r.ID, func(s *v1alpha1.SandboxSpec) { s.Env, s.Pool, s.FirstRequest = "env", "", true })
	}
	done := make(chan error, 1)
	go func() { done <- g.Activate(t.Context(), r) }()
	kubetest.Eventually(t, "the pod of a to be lost, and its request to wait", func() error {
		pod := w.pods()[0]
		if v1alpha1.PhaseOf(&pod) != v1alpha1.PodStopping || len(g.set.Waiting()) != 1 {
			return fmt.Errorf("it is %s, and %v wait", v1alpha1.PhaseOf(&pod), g.set.Waiting())
		}
		return nil
	})
	change(w, g, func() { drains.Store(true) })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.from(r.ID, "b")
}

// Of the requests that wait at one member, as many move to another as that one has pods, and
// not all of them at its first pod. Claims are counted by the rank of their member.
func TestOnePodMovesOneRequest(t *testing.T) {
	const n = 8
	w := newWorld(t)
	g := w.envGateway()
	var mu sync.Mutex
	joined := map[string]int{}
	g.o.OnNewRequest = func(_, pool string) {
		mu.Lock()
		defer mu.Unlock()
		joined[pool]++
	}
	done := make(chan error, n)
	for range n {
		go func() { done <- g.Activate(t.Context(), w.byEnv(kubetest.Name("s"), 30*time.Second)) }()
	}
	waits := func(want int) {
		t.Helper()
		kubetest.Eventually(t, fmt.Sprint(want, " to wait"), func() error {
			waiting := 0
			for _, at := range g.set.Waiting() {
				waiting += len(at.IDs)
			}
			if waiting != want {
				return fmt.Errorf("%d do", waiting)
			}
			return nil
		})
	}
	waits(n)
	served := func(pool string) {
		t.Helper()
		w.idleOf(pool, 1)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	served("b")
	served("b")
	waits(n - 2)
	for range n - 2 {
		served("a")
	}
	if joined["a"] != n || joined["b"] != 2 {
		t.Errorf("requests that stood in a queue, by member: %v; want %d at a, and 2 of them at b", joined, n)
	}
	for rank, want := range map[string]float64{"1": 2, "2": n - 2, "3": 0, "none": 0} { // b has the smaller priority
		if got := testutil.ToFloat64(g.o.Metrics.ranks.WithLabelValues(rank)); got != want {
			t.Errorf("%v claims of rank %s, want %v", got, rank, want)
		}
	}
}

func TestRankOf(t *testing.T) {
	all := []routing.Member{{Pool: "z", Priority: 1}, {Pool: "b"}, {Pool: "a"}}
	for pool, want := range map[string]int{"a": 1, "b": 2, "z": 3, "none": 0} {
		if got := rankOf(all, pool); got != want || all[0].Pool != "z" {
			t.Errorf("%s has rank %d, want %d; members %v", pool, got, want, all)
		}
	}
	NewMetrics(nil).countRank(64)
}

// A request that leaves takes the answer of a claim that has begun meanwhile, and joins
// no other queue.
func TestRequestThatLeavesTakesItsClaim(t *testing.T) {
	w := newWorld(t)
	g := w.envGateway()
	var looks atomic.Int64
	before := g.o.Members
	g.o.Members = func(namespace, env string) []routing.Member {
		if looks.Add(1) == 2 { // the request waits at a, and checks whether it should leave
			w.idleOf("a", 1)
			kubetest.Eventually(t, "the claim to land", func() error {
				if pods := w.pods(); pods[0].Annotations[v1alpha1.AnnotationClaim] == "" {
					return errors.New("it has not")
				}
				return nil
			})
			w.idleOf("b", 1)
			kubetest.Eventually(t, "the gateway to see the pod of b", func() error {
				if b, _ := g.set.Get(w.ns, "b"); !b.Spare() {
					return errors.New("it does not")
				}
				return nil
			})
		}
		return before(namespace, env)
	}
	id := kubetest.Name("s")
	g.activates(t, w.byEnv(id, 60*time.Second))
	w.from(id, "a")
	for _, pod := range w.pods() {
		if claimed := pod.Annotations[v1alpha1.AnnotationClaim] != ""; claimed != (pod.Labels[v1alpha1.LabelPool] == "a") {
			t.Errorf("pod %s of %s: claimed is %v", pod.Name, pod.Labels[v1alpha1.LabelPool], claimed)
		}
	}
}

// The pool of the pod that a sandbox of the REST API gets says whether the sandbox ends when
// it is idle, also if the sandbox lost a pod of another pool before.
func TestIdleTimeoutFollowsThePool(t *testing.T) {
	for _, first := range []string{"a", "b"} {
		t.Run("first "+first, func(t *testing.T) {
			then := map[string]string{"a": "b", "b": "a"}[first]
			w := newWorld(t)
			w.idleOf(first, 1)
			g := w.envGatewayOn(w.losesItsFirstPod())
			r := w.byEnv(kubetest.Name("s"), 40*time.Second)
			m := &Make{Idle: func(pool string) *metav1.Duration {
				if pool == "a" {
					return nil
				}
				return &metav1.Duration{}
			}}
			done := make(chan error, 1)
			go func() { done <- g.Create(t.Context(), r, m) }()
			kubetest.Eventually(t, "the first pod to be lost", func() error {
				if pod := w.pods()[0]; v1alpha1.PhaseOf(&pod) != v1alpha1.PodStopping {
					return fmt.Errorf("it is %s", v1alpha1.PhaseOf(&pod))
				}
				return nil
			})
			if idle := w.sandbox(r.ID).Spec.Timeouts.Idle; (idle == nil) != (first == "a") {
				t.Errorf("on %s: %v", first, idle)
			}
			w.idleOf(then, 1)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			w.from(r.ID, then)
			if idle := w.sandbox(r.ID).Spec.Timeouts.Idle; (idle == nil) != (then == "a") {
				t.Errorf("on %s: %v", then, idle)
			}
		})
	}
}
