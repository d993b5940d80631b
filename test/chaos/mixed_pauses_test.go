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
	mixedResting = 3 // users that pause and resume their sandboxes, some without the memory
	restingStock = 3
	// restingFor ends a paused sandbox that its user could not resume; nothing else would.
	restingFor = 30 * time.Second
)

// refusals are the answers that a pause of a sandbox that runs may have while gateways and
// the API server are harmed: it is in transition, for an earlier call; the harm came between
// its steps (judge bounds how many of these there are); its pod, the gateway or its keys were
// not to be had; it took too long.
var refusals = []int{http.StatusConflict, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// rested is a time in which a sandbox was certainly paused: from the answer to the pause
// until its user's first request to resume it.
type rested struct {
	id         string
	hibernated bool
	from, to   time.Time
}

// withPauses allows the pool's sandboxes to be paused, and bounds how long they are.
func withPauses(p *v1alpha1.SandboxPool) {
	stack.WithFreezer()(p)
	p.Spec.Pause = &v1alpha1.PoolPause{PausedFor: &metav1.Duration{Duration: restingFor}}
	withHibernation(p)
}

// pauses pauses and resumes sandboxes of the REST API until ctx ends, while there are
// requests for them through every gateway. If the run hibernates, every other sandbox
// hibernates, and must have its file each time it is resumed. At the end there are still
// requests for the last one.
func (u *user) pauses(ctx context.Context, first int) {
	for n := first; ; n++ {
		id, token := u.create("resting")
		if id == "" {
			return // the run's time is over
		}
		hibernates := u.m.hibernates && n%2 == 1
		u.asks(id)
		sure := u.used(id, 2*len(shared.Up.Gateways)) && (!hibernates || u.file(id, token, id))
		for n := 1 + u.rng.IntN(4); n > 0 && sure; n-- {
			sure = u.pauseAndResume(id, hibernates)
			u.asks(id) // count its answers anew
			// A sandbox that a stopped gateway may still pause once more is not the last.
			if wait(ctx, between(u.rng, 0, 2*time.Second)) != nil && sure && !ended(id) {
				return
			}
			sure = u.used(id, 2*len(shared.Up.Gateways)) && sure
			if hibernates {
				sure = u.file(id, token, "") && sure
			}
		}
		u.asks("")
		if err := u.kill(id); err != nil {
			u.m.t.Error(err)
		}
	}
}

// file writes the sandbox's file if there is content; otherwise it checks that the file has
// the sandbox's ID. It returns false if the sandbox has ended.
func (u *user) file(id, token, content string) bool {
	m, by := u.m, u.rng.IntN(len(shared.Up.Gateways))
	c := newHTTP(m.t)
	err := until(m.ctx, "the file of "+id, func() error {
		g := shared.Up.Gateways[by%len(shared.Up.Gateways)]
		by++
		a, err := keptFile(m.ctx, c, g, id, token, content)
		switch {
		case ended(id):
			return nil
		case err != nil:
			return err
		case content == "" && (a.Status == http.StatusOK && string(a.Body) != id || a.Status == http.StatusNotFound):
			m.mu.Lock()
			m.lostFiles = append(m.lostFiles, fmt.Sprintf("the file of %s, through %s: %v", id, g.Name, a))
			m.mu.Unlock()
		case a.Status != http.StatusOK:
			return fmt.Errorf("%s: %v", g.Name, a)
		case content == "":
			m.did("file read after a resume")
		}
		return nil
	})
	if err != nil {
		m.noAnswer("%v", err)
	}
	return err == nil && !ended(id)
}

// pauseAndResume pauses and resumes the sandbox, each through some gateway. sure is false if
// one of the two had no answer: a stopped gateway may carry it out later.
func (u *user) pauseAndResume(id string, hibernates bool) (sure bool) {
	m, n := u.m, len(shared.Up.Gateways)
	g, by := shared.Up.Gateways[u.rng.IntN(n)], u.rng.IntN(n)
	last := between(u.rng, 0, 3*time.Second)
	body, what := "{}", "paused"
	if hibernates {
		body, what = `{"memory":false}`, "hibernated"
	}
	began := time.Now()
	a, err := m.rest(g, http.MethodPost, "/sandboxes/"+id+"/pause", body)
	from := time.Now()
	switch {
	case err != nil:
		m.did("pause without an answer")
	case a.Status == http.StatusNotFound && from.Sub(began) > restingFor:
		m.did("ended while it was being paused, at the end of its pause")
	case a.Status != http.StatusNoContent:
		m.did(fmt.Sprintf("pause refused with %d", a.Status))
		if !slices.Contains(refusals, a.Status) {
			m.t.Errorf("pause of %s through %s: %v", id, g.Name, a)
		}
	}
	paused := err == nil && a.Status == http.StatusNoContent
	if paused {
		_ = wait(m.ctx, last)
		m.mu.Lock()
		m.paused = append(m.paused, rested{id, hibernates, from, time.Now()})
		m.mu.Unlock()
		m.did(what)
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

// answeredWhilePaused lists three kinds of errors: answers of sandboxes that were paused from
// before the request until after its answer; sandboxes that were frozen and did not have the
// same process afterwards; and sandboxes that hibernated and did.
func (m *mixture) answeredWhilePaused() (out []string) {
	frozen := map[string][]string{} // their processes
	for _, r := range m.paused {
		var before, after []string
		for _, a := range m.load.answers {
			switch {
			case a.ID != r.id:
				continue
			case a.Begin.After(r.from) && a.End.Before(r.to):
				out = append(out, fmt.Sprintf("%s was asked for through %s from %v to %v, and paused from %v to %v", a.ID, a.Gateway, a.Begin, a.End, r.from, r.to))
			case a.End.Before(r.from):
				before = append(before, a.Process)
			case a.Begin.After(r.to):
				after = append(after, a.Process)
			}
			if !r.hibernated && !slices.Contains(frozen[a.ID], a.Process) {
				frozen[a.ID] = append(frozen[a.ID], a.Process)
			}
		}
		if r.hibernated && slices.ContainsFunc(after, func(p string) bool { return slices.Contains(before, p) }) {
			out = append(out, fmt.Sprintf("%s was answered by a process of before it hibernated, from %v to %v", r.id, r.from, r.to))
		}
	}
	for id, all := range frozen {
		if len(all) > 1 {
			out = append(out, fmt.Sprintf("%s was answered by the processes %v", id, all))
		}
	}
	return out
}
