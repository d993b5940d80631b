package gateway

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// BenchmarkFirstRequest compares, in turns in one gateway on one API server, first requests
// by the name of a pool, of an env with two members, and of a pool whose creates are
// tracked. A ratio is that to the first; p50 is of the time of one, all of the time of all.
func BenchmarkFirstRequest(b *testing.B) {
	w := newWorld(b)
	e := &v1alpha1.SandboxEnv{}
	e.Namespace, e.Name, e.Spec.TemplateRef.Name = w.ns, "env", "none"
	e.Spec.Clusters = []v1alpha1.EnvCluster{{ClusterID: "local", Members: []v1alpha1.EnvMember{{Name: "a"}, {Name: "b"}}}}
	if err := w.c.Create(b.Context(), e); err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		w.pool(name, 8000, func(p *v1alpha1.SandboxPool) {
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(e, v1alpha1.GroupVersion.WithKind("SandboxEnv"))}
		})
	}
	g := w.gateway()
	o := activation.Options{
		Client: w.c, Schedulers: g.set.Get, Members: g.index.ClaimMembers, Cache: routecache.New(0), ClaimUse: g.usage.ClaimUse,
	}
	plain := activation.New(o)
	o.OnNewRequest = func(namespace, pool string) { g.creates.Bump(types.NamespacedName{Namespace: namespace, Name: pool}) }
	tracked := activation.New(o)
	ways := []struct {
		name, env, pool string
		by              *activation.Activator
		took            []time.Duration
	}{{name: "pool", pool: "base", by: plain}, {name: "env", env: "env", pool: "b", by: plain}, {name: "tracked", pool: "base", by: tracked}}
	round := 0
	for b.Loop() {
		for k := range ways {
			way := &ways[(round+k)%len(ways)] // each begins as often as the others
			b.StopTimer()
			w.pod(way.pool, "127.0.0.1", nil)
			kubetest.Eventually(b, "the gateway to see the pod", func() error {
				if s, ok := g.set.Get(w.ns, way.pool); !ok || !s.Spare() {
					return errors.New("it does not")
				}
				return nil
			})
			r := routing.Request{ID: kubetest.Name("s"), Namespace: w.ns, Env: way.env, New: true, Deadline: time.Now().Add(time.Minute)}
			if way.env == "" {
				r.Pool = way.pool
			}
			b.StartTimer()
			began := time.Now()
			if err := way.by.Activate(b.Context(), r); err != nil {
				b.Fatal(err)
			}
			way.took = append(way.took, time.Since(began))
		}
		round++
	}
	costs := func(all []time.Duration) (median, sum float64) {
		for _, d := range all {
			sum += d.Seconds()
		}
		slices.Sort(all)
		return all[len(all)/2].Seconds(), sum
	}
	median, sum := costs(ways[0].took)
	b.ReportMetric(median*1000, "p50-ms")
	for _, way := range ways[1:] {
		m, s := costs(way.took)
		b.ReportMetric(m/median, "p50-"+way.name+"/pool")
		b.ReportMetric(s/sum, "all-"+way.name+"/pool")
	}
}
