package chaos

import (
	"context"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/history"
	"github.com/sandlane/sandlane/test/stack"
)

// load sends requests to a stack and keeps every answer.
type load struct {
	t      *testing.T
	stack  *stack.Stack
	record *history.Recorder // of the stack's claims
	pool   string            // for first requests, or
	env    string            // for the same
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	answers []history.Answer
	status  map[string]int  // by gateway and status
	known   map[string]bool // by gateway and ID: whether the pod gave the last answer
	errs    []string
}

// newLoad makes the load of the stack that the tests share.
func newLoad(t *testing.T, pool string) *load { return newLoadOn(t, shared, record, pool) }

func newLoadOn(t *testing.T, s *stack.Stack, r *history.Recorder, pool string) *load {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return &load{t: t, stack: s, record: r, pool: pool, ctx: ctx, cancel: cancel, status: map[string]int{}, known: map[string]bool{}}
}

// newHTTP returns a client with one kept connection to one gateway's Envoy.
func newHTTP(t *testing.T) *http.Client {
	tr := &http.Transport{MaxIdleConnsPerHost: 1}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

// ask sends one request and keeps its answer. A connection that fails fails the test, since
// these tests do not kill Envoy.
func (l *load) ask(c *http.Client, g stack.Gateway, id string) stack.Answer {
	return l.askWith(l.ctx, c, g, id)
}

// askWith is ask with a context derived from the load's. Envoy does not answer requests that
// name a pool by itself, so with the fast path only requests that may be the first of their
// sandbox name one.
func (l *load) askWith(ctx context.Context, c *http.Client, g stack.Gateway, id string) stack.Answer {
	begin := time.Now()
	r := stack.Request{ID: id, Pool: l.pool}
	l.mu.Lock()
	bare := l.stack.FastPath && l.known[g.Name+" "+id]
	l.mu.Unlock()
	if bare {
		r.Pool = ""
	}
	if l.env != "" {
		r.Header = map[string]string{"X-Sandbox-Env": l.env}
	}
	req, err := r.Build(ctx, g.URL)
	var a stack.Answer
	if err == nil {
		stop := l.watch(g, id)
		a, err = stack.Send(c, req)
		stop()
	}
	end := time.Now()
	if l.ctx.Err() != nil {
		return a // stopped meanwhile
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[g.Name+" "+id] = a.Echo != nil
	switch {
	case err != nil:
		l.errs = append(l.errs, fmt.Sprintf("%s for %s, asked at %s: %v", g.Name, id, begin.UTC().Format("15:04:05.000"), err))
	case a.Echo != nil:
		l.status[g.Name+" 200"]++
		l.answers = append(l.answers, history.Answer{
			ID: id, Gateway: g.Name, PodUID: a.Echo.PodUID, Process: a.Echo.Process, Begin: begin, End: end,
		})
	default:
		l.status[fmt.Sprintf("%s %d", g.Name, a.Status)]++
		// 403: the sandbox was deleted, and the default pool makes no other.
		if a.Status != 502 && a.Status != 503 && a.Status != 504 && a.Status != 409 && !(bare && a.Status == 403) {
			l.errs = append(l.errs, fmt.Sprintf("%s for %s: %v", g.Name, id, a))
		}
	}
	return a
}

// hammer sends a request to a gateway every few milliseconds, for the ID that next returns,
// until stop; none for an empty ID. It calls seen with each answer.
func (l *load) hammer(g stack.Gateway, every time.Duration, next func() string, seen func(id string, a stack.Answer)) {
	c := newHTTP(l.t)
	l.done.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-l.ctx.Done():
				return
			case <-tick.C:
			}
			if id := next(); id != "" {
				a := l.ask(c, g, id)
				if seen != nil && l.ctx.Err() == nil {
					seen(id, a)
				}
			}
		}
	})
}

// judge stops the load, waits until the record has caught up, and judges every
// answer.
func (l *load) judge() {
	l.t.Helper()
	l.cancel()
	l.done.Wait()
	var wrong []string
	deadline := time.Now().Add(10 * time.Second)
	for i := 0; i < len(l.answers); i++ {
		err := l.record.Judge(l.answers[i])
		if err != nil && strings.Contains(err.Error(), "no sandbox") && time.Now().Before(deadline) {
			l.stack.Eventually(l.t, 10*time.Second, "the record to know "+l.answers[i].PodUID, func() (bool, string) {
				err = l.record.Judge(l.answers[i])
				return err == nil || !strings.Contains(err.Error(), "no sandbox"), fmt.Sprint(err)
			})
		}
		if err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	for _, list := range [][]string{wrong, l.errs, l.record.Trouble()} {
		for i, line := range list {
			if i == 10 {
				l.t.Errorf("… and %d more", len(list)-i)
				break
			}
			l.t.Error(line)
		}
	}
	l.t.Logf("%d answers judged, %d wrong; by gateway and status: %s", len(l.answers), len(wrong), counts(l.status))
}

// counts shows a map in order.
func counts(m map[string]int) string {
	var out []string
	for k, n := range m {
		out = append(out, fmt.Sprintf("%s: %d", k, n))
	}
	sort.Strings(out)
	return strings.Join(out, ", ")
}
