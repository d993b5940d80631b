package chaos

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

const (
	mixedResting = 3 // users that pause and resume what they have
	restingStock = 3
	// restingFor ends what a user could not resume: nothing else would.
	restingFor = 30 * time.Second
)

// rested is a time in which a sandbox was paused for sure: from the answer that said so
// to the first request of its user to resume it.
type rested struct {
	id       string
	from, to time.Time
}

// withPauses lets the pool's sandboxes be paused, and ends what nothing resumes.
func withPauses(p *v1alpha1.SandboxPool) {
	stack.WithFreezer()(p)
	p.Spec.Pause = &v1alpha1.PoolPause{PausedFor: &metav1.Duration{Duration: restingFor}}
}

// pauses has sandboxes of the REST API paused and resumed until ctx ends, while they are
// asked for through every gateway. Then the last one is asked for still.
func (u *user) pauses(ctx context.Context) {
	for {
		id := u.create("resting")
		if id == "" {
			return // the run's time is over
		}
		u.asks(id)
		sure := u.used(id, 2*len(shared.Up.Gateways))
		for n := 1 + u.rng.IntN(4); n > 0 && sure; n-- {
			sure = u.pauseAndResume(id)
			u.asks(id) // its answers count anew
			if wait(ctx, between(u.rng, 0, 2*time.Second)) != nil && !ended(id) {
				return
			}
			sure = u.used(id, 2*len(shared.Up.Gateways)) && sure
		}
		u.asks("")
		if err := u.kill(id); err != nil {
			u.m.t.Error(err)
		}
	}
}

// pauseAndResume does that by some gateway each. sure is false if one of them had no answer:
// a gateway that stood still may carry it out later.
func (u *user) pauseAndResume(id string) (sure bool) {
	m, n := u.m, len(shared.Up.Gateways)
	g, by := shared.Up.Gateways[u.rng.IntN(n)], u.rng.IntN(n)
	last := between(u.rng, 0, 3*time.Second)
	a, err := m.rest(g, http.MethodPost, "/sandboxes/"+id+"/pause", "{}")
	from := time.Now()
	switch {
	case err != nil:
		m.did("pause without an answer")
	case a.Status != http.StatusNoContent:
		m.did(fmt.Sprintf("pause refused with %d", a.Status))
		if a.Status < 409 {
			m.t.Errorf("pause of %s through %s: %v", id, g.Name, a)
		}
	}
	paused := err == nil && a.Status == http.StatusNoContent
	if paused {
		_ = wait(m.ctx, last)
		m.mu.Lock()
		m.paused = append(m.paused, rested{id, from, time.Now()})
		m.mu.Unlock()
		m.did("paused")
	}
	sure = err == nil
	err = until(m.ctx, "the resume of "+id, func() error {
		g := shared.Up.Gateways[by%n]
		by++
		a, err := m.rest(g, http.MethodPost, "/sandboxes/"+id+"/connect", `{"timeout":`+restLife+`}`)
		if err == nil && a.Status != http.StatusOK && a.Status != http.StatusCreated && a.Status != http.StatusNotFound {
			err = fmt.Errorf("%s: %v", g.Name, a)
		}
		sure = sure && err == nil
		return err
	})
	if err != nil {
		m.noAnswer("%v", err)
	}
	return sure
}

// answeredWhilePaused lists the answers of sandboxes that were paused from before the
// request until after its answer, and the sandboxes whose processes were not those of
// before.
func (m *mixture) answeredWhilePaused() (out []string) {
	processes := map[string][]string{}
	for _, r := range m.paused {
		for _, a := range m.load.answers {
			if a.ID != r.id {
				continue
			}
			if a.Begin.After(r.from) && a.End.Before(r.to) {
				out = append(out, fmt.Sprintf("%s was asked for through %s from %v to %v, and paused from %v to %v", a.ID, a.Gateway, a.Begin, a.End, r.from, r.to))
			}
			if !slices.Contains(processes[a.ID], a.Process) {
				processes[a.ID] = append(processes[a.ID], a.Process)
			}
		}
	}
	for id, all := range processes {
		if len(all) > 1 {
			out = append(out, fmt.Sprintf("%s was answered by the processes %v", id, all))
		}
	}
	return out
}
