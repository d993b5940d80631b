package activation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/test/faults"
	"github.com/sandlane/sandlane/test/kubetest"
)

const (
	stormClaims   = 2000
	stormGateways = 3
	stormAtOnce   = 80 // sandboxes that are asked for at a time
	// Of those who ask, some are in more of a hurry than a held fault lets them be.
	hurried = 500 * time.Millisecond
	patient = time.Minute
	held    = time.Second
	// stormLate is how late an answer may be: lateGrace, and a busy machine.
	stormLate = lateGrace + 2*time.Second
)

// How often writes are struck: rare ones more often, so that each fault meets
// enough of them.
var stormChances = map[faults.Kind]float64{
	faults.Create: 0.35, faults.Bind: 0.4, faults.Unbind: 0.5, faults.Claim: 0.35, faults.Stop: 0.5,
}

// ask is one request: when it was made of whom, and how it ended.
type ask struct {
	id       string
	isNew    bool
	gateway  int
	patience time.Duration
	from, to time.Time
	err      error
	answers  int
	podUID   string // of the route that it left, if it was still there
}

// storm is three gateways whose writes fail, and what was asked of them.
type storm struct {
	*world
	gateways   []*gateway
	transports []*faults.Transport
	asks       []*ask // in the order they were planned
}

// Writes that are delayed, dropped or failed, before and after they are applied
// and later than the calls that follow them: each of 2,000 sandboxes, asked for
// by several at once over three gateways, gets its one pod, and each request its
// one answer. Set SANDLANE_SEED to meet other faults.
func TestClaimsUnderFailingWrites(t *testing.T) {
	seed := uint64(1)
	if v := os.Getenv("SANDLANE_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("SANDLANE_SEED: %v", err)
		}
	}
	t.Logf("seed %d", seed)
	s := newStorm(t, seed)
	began := time.Now()
	s.blow(seed)
	t.Logf("%d requests for %d sandboxes in %v", len(s.asks), stormClaims, time.Since(began).Round(time.Millisecond))
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

func newStorm(t *testing.T, seed uint64) *storm {
	s := &storm{world: newWorld(t)}
	s.keepStock(3 * stormAtOnce)
	for i := range stormGateways {
		plan := faults.Random(seed+uint64(i)<<32, stormChances, held)
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

// blow asks for every sandbox: most are new, one in four exists without a pod,
// and of these some want another image, so that their pods have to start.
func (s *storm) blow(seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	prefix := kubetest.Name("storm")
	turns := make(chan struct{}, stormAtOnce)
	var wg sync.WaitGroup
	for i := range stormClaims {
		id := fmt.Sprintf("%s-%d", prefix, i)
		var asks []*ask
		first, several := rnd.IntN(stormGateways), 1+rnd.IntN(3)
		for n := range several {
			a := &ask{id: id, isNew: i%4 != 0, gateway: (first + n) % stormGateways, patience: patient}
			if rnd.IntN(2) == 0 {
				a.patience = hurried
			}
			asks = append(asks, a)
		}
		s.asks = append(s.asks, asks...)
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			if !asks[0].isNew {
				s.make(id, func(spec *v1alpha1.SandboxSpec) {
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
	if errors.Is(a.err, ErrExists) && r.New {
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
// time, with nothing failing.
func (s *storm) askAgain() {
	turns := make(chan struct{}, stormAtOnce)
	var wg sync.WaitGroup
	seen := make(map[string]bool)
	for _, before := range s.asks {
		if seen[before.id] {
			continue
		}
		seen[before.id] = true
		again := &ask{id: before.id, isNew: before.isNew, gateway: (before.gateway + 1) % stormGateways, patience: patient}
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			if s.do(again); again.err != nil {
				s.t.Errorf("lost: %s, asked for again without faults: %v", again.id, again.err)
			}
		})
	}
	wg.Wait()
}
