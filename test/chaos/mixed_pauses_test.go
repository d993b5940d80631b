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
	mixedResting = 3 // users that pause and resume what they have, some of it without its memory
	restingStock = 3
	// restingFor ends what a user could not resume: nothing else would.
	restingFor = 30 * time.Second
)

// rested is a time in which a sandbox was paused for sure: from the answer that said so
// to the first request of its user to resume it.
type rested struct {
	id         string
	hibernated bool
	from, to   time.Time
}

// withPauses lets the pool's sandboxes be paused, and ends what nothing resumes.
func withPauses(p *v1alpha1.SandboxPool) {
	stack.WithFreezer()(p)
	p.Spec.Pause = &v1alpha1.PoolPause{PausedFor: &metav1.Duration{Duration: restingFor}}
	withHibernation(p)
}

// pauses has sandboxes of the REST API paused and resumed until ctx ends, while they are
// asked for through every gateway. If the run hibernates every other one does, and must have
// its file each time it is resumed. Then the last one is asked for still.
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
			u.asks(id) // its answers count anew
			// One that may be paused once more, by a gateway that stood still, is not the last.
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

// file writes the sandbox's file if there is content, or wants it to have the sandbox's ID.
// False: it has ended.
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

// pauseAndResume does that by some gateway each. sure is false if one of them had no answer:
// a gateway that stood still may carry it out later.
func (u *user) pauseAndResume(id string, hibernates bool) (sure bool) {
	m, n := u.m, len(shared.Up.Gateways)
	g, by := shared.Up.Gateways[u.rng.IntN(n)], u.rng.IntN(n)
	last := between(u.rng, 0, 3*time.Second)
	body, what := "{}", "paused"
	if hibernates {
		body, what = `{"memory":false}`, "hibernated"
	}
	a, err := m.rest(g, http.MethodPost, "/sandboxes/"+id+"/pause", body)
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

// answeredWhilePaused lists the answers of sandboxes that were paused from before the
// request until after its answer, those that were frozen and whose processes were not those
// of before, and those that hibernated and whose processes were.
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
