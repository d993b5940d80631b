package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandlane/sandlane/controlplane/controlplanepb"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// fakePauseEnforcer answers what it is told to.
type fakePauseEnforcer struct {
	mu    sync.Mutex
	asked []EnforcePause
	err   error
	// silent: the pod gives no answer, and EnforcePause returns err when ctx is done.
	silent bool
}

func (f *fakePauseEnforcer) EnforcePause(ctx context.Context, q EnforcePause) error {
	f.mu.Lock()
	f.asked = append(f.asked, q)
	silent, err := f.silent, f.err
	f.mu.Unlock()
	if silent {
		<-ctx.Done()
	}
	return err
}

// silence has the pod give no answer.
func (f *fakePauseEnforcer) silence() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent, f.err = true, ErrUnanswered
}

// times is how often it was called.
func (f *fakePauseEnforcer) times() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

func (f *fakePauseEnforcer) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// One gateway is enough; its word counts, and one that does not answer is passed over.
func TestEnforcePause(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		q := EnforcePause{SandboxID: "i0", ClaimID: "c", Freeze: true, Order: 7}
		if err := s.client.EnforcePause(t.Context(), q); err == nil {
			t.Error("without a gateway it is done")
		}
		one, two := s.run("g1", "a"), s.run("g2", "b")
		s.cutOff("g1", true)
		for _, c := range []struct{ says, want error }{
			{nil, nil}, {writes.ErrStale, writes.ErrStale}, {ErrNoFreezer, ErrNoFreezer}, {ErrNotSaved, ErrNotSaved},
		} {
			two.quiets.set(c.says)
			if err := s.client.EnforcePause(t.Context(), q); !errors.Is(err, c.want) {
				t.Errorf("%v: %v", c.says, err)
			}
		}
		two.quiets.set(fmt.Errorf("%w: the pod is deaf", ErrNotDone))
		err := s.client.EnforcePause(t.Context(), q)
		if !errors.Is(err, ErrNotDone) || errors.Is(err, writes.ErrStale) || errors.Is(err, ErrNoFreezer) || !strings.Contains(err.Error(), "deaf") {
			t.Errorf("a failure: %v", err)
		}
		if len(one.quiets.asked) != 0 || len(two.quiets.asked) != 5 || two.quiets.asked[0] != q {
			t.Errorf("asked: %+v and %+v", one.quiets.asked, two.quiets.asked)
		}
		s.cutOff("g2", true)
		if err := s.client.EnforcePause(t.Context(), q); err == nil || errors.Is(err, ErrNotDone) {
			t.Errorf("none has answered: %v", err)
		}
	})
}

// A gateway's own trouble is not the freezer's failure, after which a sandbox may be ended:
// the next gateway is asked. A freezer has failed only if it says so, also if it answers no
// gateway.
func TestEnforcePauseByGatewaysInTrouble(t *testing.T) {
	away := errors.New("the API server is away")
	for what, c := range map[string]struct {
		one, two error
		want     error // nil: done
		asked    int   // how many of the two
	}{
		"one cannot ask":                {away, nil, nil, 2},
		"one gets no answer":            {ErrUnanswered, nil, nil, 2},
		"none can ask":                  {away, away, errInTrouble, 2},
		"none gets an answer":           {ErrUnanswered, ErrUnanswered, errInTrouble, 2},
		"the other gets no answer":      {away, ErrUnanswered, errInTrouble, 2},
		"the other is refused":          {away, ErrNotDone, ErrNotDone, 2},
		"the freezer refuses either":    {ErrNotDone, ErrNotDone, ErrNotDone, 1},
		"the files cannot be kept":      {ErrNotSaved, ErrNotSaved, ErrNotSaved, 1},
		"there is no answer to the one": {ErrUnanswered, ErrNotSaved, ErrNotSaved, 2},
	} {
		simulate(t, func(t *testing.T, s *simulation) {
			one, two := s.run("g1", "a"), s.run("g2", "b")
			one.quiets.set(c.one)
			two.quiets.set(c.two)
			most := 0
			for range 20 { // they are asked in an order by chance
				before := len(one.quiets.asked) + len(two.quiets.asked)
				err := s.client.EnforcePause(t.Context(), EnforcePause{SandboxID: "i0", ClaimID: "c", Freeze: true, Order: 7})
				most = max(most, len(one.quiets.asked)+len(two.quiets.asked)-before)
				told := errors.Is(err, ErrNotDone) || errors.Is(err, ErrNotSaved)
				troubled := errors.Is(c.want, errInTrouble)
				if troubled && (err == nil || told) || !troubled && !errors.Is(err, c.want) || err != nil && c.want == nil {
					t.Errorf("%s: %v, want %v", what, err, c.want)
				}
			}
			if most != c.asked {
				t.Errorf("%s: up to %d gateways were asked", what, most)
			}
		})
	}
}

// A pod that answers no gateway keeps an order for about as long as one gateway may take, however
// many gateways there are; a gateway that reaches it is found beside one that does not.
// Files are kept by one gateway at a time.
func TestEnforcePauseOfASilentPod(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		q := EnforcePause{SandboxID: "i0", ClaimID: "c", Freeze: true, Order: 7}
		var all []*gateway
		for i := range 20 {
			g := s.run(fmt.Sprint("g", i), fmt.Sprint("h", i))
			g.quiets.silence()
			all = append(all, g)
		}
		begun := time.Now()
		if err := s.client.EnforcePause(t.Context(), q); err == nil {
			t.Error("a silent pod was frozen")
		}
		asked := 0
		for _, g := range all {
			asked += g.quiets.times()
		}
		if took := time.Since(begun); took > enforcePauseTimeout+askedAtOnce*askAnotherAfter || asked != askedAtOnce {
			t.Errorf("it took %s and %d gateways", took, asked)
		}
	})
	simulate(t, func(t *testing.T, s *simulation) {
		cutOff, reaches := s.run("g1", "a"), s.run("g2", "b")
		cutOff.quiets.silence()
		for _, q := range []EnforcePause{{SandboxID: "i0", ClaimID: "c", Freeze: true, Order: 7}, {SandboxID: "i1", ClaimID: "c", Saves: true, Order: 7}} {
			for range 20 { // they are asked in an order by chance
				begun := time.Now()
				if err := s.client.EnforcePause(t.Context(), q); err != nil {
					t.Errorf("%+v: %v", q, err)
				}
				if took := time.Since(begun); !q.Saves && took > askAnotherAfter || q.Saves && took > 0 && took < saveTimeout {
					t.Errorf("%+v: it took %s", q, took)
				}
			}
		}
		if n := reaches.quiets.times(); n != 40 {
			t.Errorf("the gateway that reaches the pod was asked %d times", n)
		}
	})
}

// errInTrouble is an error that says nothing about the freezer.
var errInTrouble = errors.New("no gateway could tell")

// An outcome that is not known is not taken for the freezer's failure.
func TestUnknownOutcomes(t *testing.T) {
	for _, o := range []controlplanepb.EnforcePauseOutcome{controlplanepb.EnforcePauseOutcome_ENFORCE_PAUSE_OUTCOME_UNSPECIFIED, 1000} {
		err := outcomeError(&controlplanepb.EnforcePauseResponse{Outcome: o, Message: "why"})
		if err == nil || !strings.Contains(err.Error(), "why") {
			t.Errorf("%s: %v", o, err)
		}
		for _, known := range outcomes {
			if known.err != nil && errors.Is(err, known.err) {
				t.Errorf("%s: %v", o, err)
			}
		}
	}
}
