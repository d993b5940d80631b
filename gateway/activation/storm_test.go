package activation

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/faults"
	"github.com/sandlane/sandlane/test/kubetest"
)

// storm is three gateways whose writes fail, and the requests to them.
type storm struct {
	*world
	gateways   []*gateway
	transports []*faults.Transport
	plan       *plan
	asks       []*ask // all that are planned
}

// Writes that are delayed, dropped or failed, before and after they are applied
// and later than the calls that follow them: each sandbox, asked for by several
// at once over three gateways, gets its one pod, and each request its one answer.
// SANDLANE_STORM=full asks for 2,000; set SANDLANE_SEED to meet other faults.
func TestClaimsUnderFailingWrites(t *testing.T) {
	p := newPlan(t)
	t.Logf("seed %d", p.seed)
	s := newStorm(t, p)
	began := time.Now()
	s.blow()
	t.Logf("%d requests for %d sandboxes in %v", len(s.asks), p.claims, time.Since(began).Round(time.Millisecond))
	for _, tr := range s.transports {
		tr.Calm()
		tr.Flush()
	}
	began = time.Now()
	s.askAgain()
	t.Logf("asked each again in %v", time.Since(began).Round(time.Millisecond))
	for _, g := range s.gateways { // what claims still had to do is done
		g.set.Shutdown()
		g.Shutdown()
	}
	s.judgeAnswers()
	s.judgeObjects()
	s.judgeFaults()
}

func newStorm(t *testing.T, p *plan) *storm {
	s := &storm{world: newWorld(t), plan: p, asks: slices.Concat(p.asks...)}
	s.keepStock(3 * stormAtOnce)
	for i := range stormGateways {
		plan := p.faults(i)
		config := kubetest.Config(t)
		var tr *faults.Transport
		config.Wrap(func(base http.RoundTripper) http.RoundTripper {
			tr = faults.New(base, plan)
			return tr
		})
		s.gateways = append(s.gateways, s.gateway(stormClient(t, config), schedule.WithSeed(uint64(i))))
		s.transports = append(s.transports, tr)
	}
	return s
}

// stormClient is made as a gateway's.
func stormClient(t *testing.T, config *rest.Config) client.Client {
	c, err := client.New(config, client.Options{Scheme: kubetest.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// blow asks for every sandbox as planned. Of those that exist already some want
// another image, so that their pods have to start.
func (s *storm) blow() {
	turns := make(chan struct{}, stormAtOnce)
	var wg sync.WaitGroup
	for i, asks := range s.plan.asks {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			if !asks[0].isNew {
				s.make(asks[0].id, func(spec *v1alpha1.SandboxSpec) {
					if i%20 == 0 {
						spec.Images = map[string]string{"main": "other"}
					}
				})
			}
			var these sync.WaitGroup
			for _, a := range asks {
				these.Go(func() { s.do(a) })
			}
			these.Wait()
		})
	}
	wg.Wait()
}

// do makes a request as a gateway does: one that finds that its sandbox exists
// asks for that.
func (s *storm) do(a *ask) {
	g := s.gateways[a.gateway]
	a.from = time.Now()
	r := s.request(a.id, a.isNew, a.patience)
	a.err = g.Activate(context.Background(), r)
	if errors.Is(a.err, routing.ErrExists) && r.New {
		r.New = false
		a.err = g.Activate(context.Background(), r)
	}
	a.to = time.Now()
	a.answers++
	if route := g.cache.Get(a.id); route != nil && a.err == nil {
		a.podUID = route.PodUID
	}
}

// askAgain asks for every sandbox once more, of another gateway than the first
// time, with nothing failing. That gateway's index has seen the sandboxes that
// exist; a request that finds none makes it.
func (s *storm) askAgain() {
	turns := make(chan struct{}, stormAtOnce)
	var wg sync.WaitGroup
	for _, before := range s.plan.asks {
		again := &ask{id: before[0].id, gateway: (before[0].gateway + 1) % stormGateways, patience: patient}
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			if s.do(again); again.err == nil && again.podUID == "" {
				again.isNew = true
				s.do(again)
			}
			if again.err != nil {
				s.t.Errorf("lost: %s, asked for again without faults: %v\n%s", again.id, again.err, s.story(again.id))
			}
		})
	}
	wg.Wait()
}
