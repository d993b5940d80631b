package restapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	answerLifetime   = 24 * time.Hour
	answersPerTeam   = 1000
	teamsWithAnswers = 256
	keyReused        = "The Idempotency-Key was used with another request."
)

var errAborted = errors.New("a create with this Idempotency-Key did not end in an answer")

// answers holds the answers of creates with an Idempotency-Key. Each key is running, done
// or forgotten; see create.go. Running ones are not bounded here, since they end within
// the create's deadline; done ones are, by team, so that no team pushes out another's:
// the answer used longest ago goes first.
type answers struct {
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

func newAnswers() *answers {
	done, _ := simplelru.NewLRU[string, *simplelru.LRU[string, answer]](teamsWithAnswers, nil) // fails below 1 only
	return &answers{running: map[answerKey]*making{}, done: done}
}

// once returns the answer of the create that had this key. It waits if that create is
// under way, and calls run if there was none. It refuses a key that was used with another
// request than this one.
func (a *answers) once(ctx context.Context, caller KeyOwner, key string, request [sha256.Size]byte, run func() ([]byte, error)) ([]byte, error) {
	k := answerKey{team: caller.Namespace + "/" + caller.Team, key: key}
	for {
		m, known, owner := a.enter(k, request)
		switch {
		case known != nil:
			if known.request != request {
				return nil, refuse(http.StatusConflict, keyReused)
			}
			return known.body, nil
		case owner:
			return a.run(ctx, k, m, run)
		case m.request != request:
			return nil, refuse(http.StatusConflict, keyReused)
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
func (a *answers) enter(k answerKey, request [sha256.Size]byte) (m *making, known *answer, owner bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := a.running[k]; m != nil {
		return m, nil, false
	}
	if team, found := a.done.Get(k.team); found {
		if got, found := team.Get(k.key); found && time.Since(got.at) < answerLifetime {
			return nil, &got, false
		}
	}
	m = &making{request: request, ended: make(chan struct{}), err: errAborted}
	a.running[k] = m
	return m, nil, true
}

func (a *answers) run(ctx context.Context, k answerKey, m *making, run func() ([]byte, error)) ([]byte, error) {
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
func (a *answers) keep(k answerKey, got answer) {
	team, found := a.done.Get(k.team)
	if !found {
		team, _ = simplelru.NewLRU[string, answer](answersPerTeam, nil) // fails below 1 only
		a.done.Add(k.team, team)
	}
	team.Add(k.key, got)
}

// decodeAndHash reads the body into into and returns a hash of the path and of
// what the body says, whatever its spaces and the order of its fields.
func decodeAndHash(r *http.Request, into any) ([sha256.Size]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("read a body from memory: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err := decode(r, into); err != nil {
		return [sha256.Size]byte{}, err
	}
	numbers := json.NewDecoder(bytes.NewReader(body))
	numbers.UseNumber()
	var says any
	if err := numbers.Decode(&says); err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("read a body for the second time: %w", err)
	}
	return sha256.Sum256(append(encode(says), r.URL.Path...)), nil
}
