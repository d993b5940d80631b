package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/history"
	"github.com/sandlane/sandlane/test/stack"
)

const (
	hitSlots   = 12
	hitClients = 8 // of each gateway
	// hitsPerSecond leaves half of two quiet cores to the processes that recover.
	hitsPerSecond = 5000
	// hitPause is the delay after a request that a harmed gateway or Envoy has not answered,
	// so that failed requests do not take the share of the others.
	hitPause = 50 * time.Millisecond
)

// hitsWanted is how much a run of hits must have done at least.
type hitsWanted struct {
	answers int           // of pods
	ends    int           // of sandboxes, whose addresses serve others at once
	faults  int           // of each kind
	limit   time.Duration // on a busy machine
}

// Clients send as many requests as the machine allows for sandboxes that are made and ended,
// while gateways and Envoys are killed, stopped and cut off. No answer comes from another
// sandbox's pod, whether Envoy asks its gateway or answers by itself.
func TestSecondsOfHits(t *testing.T) {
	hits(t, hitsWanted{answers: 15_000, ends: 20, faults: 1, limit: 3 * time.Minute}, [][]string{{killed, envoyStopped}, {stopped, envoyKilled}})
}

// TestAMillionHits is the one of `make chaos`: seven minutes on two quiet cores. The two
// faults that outlast a lease have a lane each.
func TestAMillionHits(t *testing.T) {
	hits(t, hitsWanted{answers: 1_000_000, ends: 300, faults: 6, limit: 20 * time.Minute}, [][]string{
		{killed, envoyKilled, stoppedLong, envoyStopped, cutAPI, stopped}, {cutBothLong, envoyKilled, killed, cutKilled, envoyStopped},
	})
}

func hits(t *testing.T, want hitsWanted, lanes [][]string) {
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", hitSlots, stack.WithIdleTimeout(0))
	before, err := hitsInEnvoy(tables)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), want.limit)
	defer cancel()
	r := &hitRun{
		t: t, ctx: ctx, ns: ns, pace: rate.NewLimiter(hitsPerSecond, hitClients),
		last: map[seen]history.Answer{}, refused: map[string]int{},
	}
	slots := make([]*hitSlot, hitSlots)
	load, enough := context.WithCancel(ctx)
	defer enough()
	var lives, clients sync.WaitGroup
	for i := range slots {
		slots[i] = &hitSlot{run: r, prefix: fmt.Sprintf("%s-hit-%d", ns, i)}
		lives.Go(func() { slots[i].live(load) })
	}
	for _, g := range shared.Up.Gateways {
		for i := range hitClients {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(time.Now().UnixNano())))
			clients.Go(func() { r.ask(load, g, slots, rng) })
		}
		clients.Go(func() { r.askInStreams(load, g, slots) })
	}
	reused, began := record.Reused(), time.Now()
	done := r.harm(lanes, func(faults int) bool {
		answers, ends := r.counts()
		return answers >= want.answers && ends >= want.ends && faults >= want.faults
	})
	took := time.Since(began)
	r.restored()
	enough()
	lives.Wait()
	clients.Wait()
	after, err := hitsInEnvoy(tables)
	if err != nil {
		t.Fatal(err)
	}
	wrong := r.judge()
	answers, ends := r.counts()
	t.Logf("%d answers of pods in %v, %d of them without asking a gateway, %d wrong; %d sandboxes ended, %d addresses used again; refused: %s; faults: %s",
		answers, took.Round(time.Second), after-before, wrong, ends, record.Reused()-reused, counts(r.refused), counts(done))
	if answers < want.answers || ends < want.ends {
		t.Errorf("that is too little: want %d answers and %d ends", want.answers, want.ends)
	}
	for _, lane := range lanes {
		for _, kind := range lane {
			if done[kind] < want.faults {
				t.Errorf("that is too little: %s %d times, want %d", kind, done[kind], want.faults)
			}
		}
	}
	if shared.FastPath && after-before < uint64(answers)/2 {
		t.Errorf("that is too little: Envoy answered %d of %d requests by itself", after-before, answers)
	}
}

// seen is the key of answers of which only the latest is judged.
type seen struct{ id, gateway, pod, process string }

// hitRun is one run.
type hitRun struct {
	t    *testing.T
	ctx  context.Context
	ns   string
	pace *rate.Limiter // of all clients

	mu      sync.Mutex
	last    map[seen]history.Answer
	answers int
	ends    int
	refused map[string]int // by status, or what broke
}

func (r *hitRun) counts() (answers, ends int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answers, r.ends
}

// ask is one client: it sends requests for one sandbox after the other to a gateway's Envoy.
// If the Envoy is killed its connection ends, and a request that was sent has no answer.
func (r *hitRun) ask(ctx context.Context, g stack.Gateway, slots []*hitSlot, rng *rand.Rand) {
	s := newSteady("", 0, g, "")
	s.want = nil // the judge looks at the pod
	defer s.hangUp()
	harmed := false // or there is none to ask for yet
	for {
		if harmed && wait(ctx, hitPause) != nil || r.pace.Wait(ctx) != nil {
			return
		}
		id := someID(slots, rng)
		if harmed = id == ""; harmed {
			continue
		}
		s.request = fmt.Appendf(s.request[:0], "GET / HTTP/1.1\r\nHost: %s\r\nX-Sandbox-Id: %s\r\nX-Sandbox-Port: 8000\r\n\r\n", s.address, id)
		begin := time.Now()
		status, err := s.ask()
		if ctx.Err() != nil {
			return
		}
		harmed = status == 0 || status >= http.StatusServiceUnavailable
		r.note(id, g, begin, status, s.body.Bytes(), err)
	}
}

// note counts an answer, of which a status of 0 is none, and keeps it for the judge.
func (r *hitRun) note(id string, g stack.Gateway, begin time.Time, status int, body []byte, err error) {
	pod, process := field(body, "podUID"), field(body, "process")
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case status == 0:
		r.refused["no answer"]++
	case err != nil || pod == "":
		r.refused[fmt.Sprint(status)]++
	default:
		r.answers++
		key := seen{id, g.Name, pod, process}
		if begin.After(r.last[key].Begin) {
			r.last[key] = history.Answer{ID: id, Gateway: g.Name, PodUID: pod, Process: process, Begin: begin, End: time.Now()}
		}
	}
}

// field finds a text of the echo server's answer.
func field(body []byte, name string) string {
	_, rest, _ := bytes.Cut(body, []byte(`"`+name+`":"`))
	text, _, found := bytes.Cut(rest, []byte(`"`))
	if !found {
		return ""
	}
	return string(text)
}

// judge checks that each answer came from a pod that the sandbox had during the request.
func (r *hitRun) judge() (wrong int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	deadline := time.Now().Add(10 * time.Second)
	for _, a := range r.last {
		err := record.Judge(a)
		for err != nil && strings.Contains(err.Error(), "no sandbox") && time.Now().Before(deadline) {
			_ = wait(r.ctx, 50*time.Millisecond) // the record may be late
			err = record.Judge(a)
		}
		if err == nil {
			continue
		}
		if wrong++; wrong <= 10 {
			r.t.Error(err)
		}
	}
	for _, line := range record.Trouble() {
		r.t.Error(line)
	}
	return wrong
}

// hitSlot is one of the sandboxes at a time; when one ends another follows.
type hitSlot struct {
	run    *hitRun
	prefix string

	mu sync.Mutex
	id string // empty: there is no sandbox for requests
}

func (s *hitSlot) current() string { s.mu.Lock(); defer s.mu.Unlock(); return s.id }

// live makes sandboxes for the clients' requests, and ends them during these.
func (s *hitSlot) live(ctx context.Context) {
	rng := rand.New(rand.NewPCG(uint64(len(s.prefix)), uint64(time.Now().UnixNano())))
	for n := 0; ; n++ {
		id := fmt.Sprintf("%s-%d", s.prefix, n)
		if s.make(ctx, id) != nil {
			return
		}
		s.mu.Lock()
		s.id = id
		s.mu.Unlock()
		if wait(ctx, between(rng, 2*time.Second, 6*time.Second)) != nil {
			return
		}
		var err error
		if deleted := rng.IntN(3) == 0; deleted {
			err = shared.Client.Delete(ctx, &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id}})
		} else {
			err = writes.EndSandbox(ctx, shared.Client, id, v1alpha1.EndReleased, "the next one comes")
		}
		if err != nil {
			if ctx.Err() == nil {
				s.run.t.Errorf("end %s: %v", id, err)
			}
			return
		}
		s.run.mu.Lock()
		s.run.ends++
		s.run.mu.Unlock()
		if wait(ctx, time.Second) != nil { // meanwhile there are still requests for it, and its pod is stopped
			return
		}
		s.mu.Lock()
		s.id = ""
		s.mu.Unlock()
	}
}

// make sends the first request, by any gateway that serves.
func (s *hitSlot) make(ctx context.Context, id string) error {
	gateways := shared.Up.Gateways
	from := rand.IntN(len(gateways))
	try := 0
	return until(ctx, id+" to have a pod", func() error {
		g := gateways[(from+try)%len(gateways)]
		try++
		asking, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		req, err := stack.Request{ID: id, Pool: s.run.ns + "/pool"}.Build(asking, g.URL)
		if err != nil {
			return err
		}
		req.Close = true
		a, err := stack.Send(nil, req)
		if err == nil && a.Echo == nil {
			err = errors.New(a.String())
		}
		return err
	})
}
