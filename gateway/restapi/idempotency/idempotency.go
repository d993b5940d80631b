// Package idempotency lets a request that is repeated with its Idempotency-Key get the
// answer of the first one. Make [Answers] with New and call Once for each request with a
// key; see the creates of package restapi.
//
// Answers are kept in the memory of this process alone.
package idempotency

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Lifetime is how long an answer is kept.
const Lifetime = 24 * time.Hour

const (
	answersPerTeam   = 1000
	teamsWithAnswers = 256
)

// ErrKeyReused says that the key was used with another request.
var ErrKeyReused = errors.New("the Idempotency-Key was used with another request")

var errAborted = errors.New("a create with this Idempotency-Key did not end in an answer")

// Answers holds the answers of creates with an Idempotency-Key. Each key is running, done
// or forgotten. Running ones are not bounded here, since they end within
// the create's deadline; done ones are, by team, so that no team pushes out another's:
// the answer used longest ago goes first. It is safe for concurrent use.
type Answers struct {
	mu      sync.Mutex // guards all below; not held while a sandbox is made
	running map[answerKey]*making
	done    *simplelru.LRU[string, *simplelru.LRU[string, answer]] // by team, then key
}

type answerKey struct{ team, key string }

type answer struct {
	request [sha256.Size]byte
	body    []byte
	at      time.Time
}

// making is a create under way. The fields below ended are written before it is
// closed and read after.
type making struct {
	request [sha256.Size]byte
	ended   chan struct{}
	body    []byte
	err     error
	// deserted: its client left, so it is not known whether it would have succeeded.
	deserted bool
}

// New returns Answers that hold none.
func New() *Answers {
	done, _ := simplelru.NewLRU[string, *simplelru.LRU[string, answer]](teamsWithAnswers, nil) // fails below 1 only
	return &Answers{running: map[answerKey]*making{}, done: done}
}

// Once returns the answer of the create that had this key. It waits if that create is
// under way, and calls run if there was none. It returns ErrKeyReused if
// the key was used with another request than this one. Keys are a team's own.
func (a *Answers) Once(ctx context.Context, team, key string, request [sha256.Size]byte, run func() ([]byte, error)) ([]byte, error) {
	k := answerKey{team: team, key: key}
	for {
		m, known, owner := a.enter(k, request)
		switch {
		case known != nil:
			if known.request != request {
				return nil, ErrKeyReused
			}
			return known.body, nil
		case owner:
			return a.run(ctx, k, m, run)
		case m.request != request:
			return nil, ErrKeyReused
		}
		select {
		case <-m.ended:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the create with the same key: %w", ctx.Err())
		}
		if !m.deserted {
			return m.body, m.err
		}
	}
}

// enter returns the known answer of a key, or else the create m that will give it. owner
// is true if the caller must carry that create out.
func (a *Answers) enter(k answerKey, request [sha256.Size]byte) (m *making, known *answer, owner bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := a.running[k]; m != nil {
		return m, nil, false
	}
	if team, found := a.done.Get(k.team); found {
		if got, found := team.Get(k.key); found && time.Since(got.at) < Lifetime {
			return nil, &got, false
		}
	}
	m = &making{request: request, ended: make(chan struct{}), err: errAborted}
	a.running[k] = m
	return m, nil, true
}

func (a *Answers) run(ctx context.Context, k answerKey, m *making, run func() ([]byte, error)) ([]byte, error) {
	// Deferred, since run may panic.
	defer func() {
		m.deserted = m.err != nil && ctx.Err() != nil
		a.mu.Lock()
		delete(a.running, k)
		if m.err == nil {
			a.keep(k, answer{request: m.request, body: m.body, at: time.Now()})
		}
		a.mu.Unlock()
		close(m.ended)
	}()
	m.body, m.err = run()
	return m.body, m.err
}

// keep is called with mu held.
func (a *Answers) keep(k answerKey, got answer) {
	team, found := a.done.Get(k.team)
	if !found {
		team, _ = simplelru.NewLRU[string, answer](answersPerTeam, nil) // fails below 1 only
		a.done.Add(k.team, team)
	}
	team.Add(k.key, got)
}
