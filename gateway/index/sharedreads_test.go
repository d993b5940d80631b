package index

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/bubble"
)

// reads answers shared reads, each after a while.
type slowReads struct {
	begun atomic.Int64
	state routing.State
	err   error
}

const readTakes = 10 * time.Millisecond

func (r *slowReads) read(ctx context.Context, _, _ string) (routing.Answer, error) {
	n := r.begun.Add(1)
	if !backoff.Sleep(ctx, readTakes) {
		return routing.Answer{}, ctx.Err()
	}
	a := routing.Answer{State: r.state, PauseOrder: n}
	if r.state == routing.Running {
		a.Route = &routecache.Route{}
	}
	return a, r.err
}

// A request is answered by a read that began after it came; all that come during one
// share the next.
func TestSharedReads(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := &slowReads{state: routing.Running}
		x := newSharedReads(r.read)
		answers := make(chan routing.Answer, 200)
		ask := func(key string, begun int64) {
			go func() {
				a, err := x.resolve(t.Context(), key, "s")
				if err != nil || a.PauseOrder <= begun {
					t.Errorf("%v; read %d answers a request that came after %d had begun", err, a.PauseOrder, begun)
				}
				answers <- a
			}()
		}
		ask("", 0)
		synctest.Wait()
		for range 100 {
			ask("", 1)
		}
		synctest.Wait()
		if n := r.begun.Load(); n != 1 {
			t.Errorf("%d reads are under way", n)
		}
		time.Sleep(readTakes + readTakes/2)
		for range 98 {
			ask("", 2)
		}
		synctest.Wait()
		ask("key", 2)
		time.Sleep(10 * readTakes)
		synctest.Wait()
		if n := r.begun.Load(); n != 4 || len(answers) != cap(answers) || len(x.open) != 0 {
			t.Errorf("%d reads for %d requests; %d are open", n, len(answers), len(x.open))
		}
		routes := map[*routecache.Route]bool{}
		for range cap(answers) {
			routes[(<-answers).Route] = true
		}
		if len(routes) != cap(answers) {
			t.Error("two requests got the same route to change")
		}
	})
}

// However many requests ask for a paused sandbox, it is read at most ten times a second;
// what is not paused, or could not be read, is read at once.
func TestReadsOfAPausedSandbox(t *testing.T) {
	for _, c := range []struct {
		state routing.State
		err   error
		most  int64
	}{{routing.Paused, nil, 10}, {routing.Running, nil, 101}, {routing.Paused, errors.New("no"), 101}} {
		bubble.Test(t, func(t *testing.T) {
			r := &slowReads{state: c.state, err: c.err}
			x := newSharedReads(r.read)
			for range 1000 {
				go func() { _, _ = x.resolve(t.Context(), "", "s") }()
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			if n := r.begun.Load(); n > c.most || n < c.most-2 {
				t.Errorf("%s, %v: %d reads in a second", c.state, c.err, n)
			}
			x.close()
		})
	}
}

// A request that leaves does not end the read for the others.
func TestSharedReadIsLeft(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := &slowReads{state: routing.Running}
		x := newSharedReads(r.read)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := x.resolve(ctx, "", "s")
			left <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if a, err := x.resolve(t.Context(), "", "s"); err != nil || a.PauseOrder != 2 {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

// At the end nothing is read any more, a paused sandbox rests no more, and nothing new
// begins.
func TestSharedReadsEnd(t *testing.T) {
	for _, state := range []routing.State{routing.Running, routing.Paused} {
		bubble.Test(t, func(t *testing.T) {
			r := &slowReads{state: state}
			x := newSharedReads(r.read)
			if _, err := x.resolve(t.Context(), "", "s"); err != nil { // of a paused one a rest follows
				t.Fatal(err)
			}
			synctest.Wait()
			underWay := make(chan error, 1)
			go func() {
				_, err := x.resolve(t.Context(), "", "s")
				underWay <- err
			}()
			synctest.Wait()
			began := time.Now()
			x.close()
			if took := time.Since(began); took != 0 {
				t.Errorf("%s: the end took %v", state, took)
			}
			if err := <-underWay; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: the request under way: %v", state, err)
			}
			begun := r.begun.Load()
			if _, err := x.resolve(t.Context(), "", "s"); !errors.Is(err, context.Canceled) || r.begun.Load() != begun {
				t.Errorf("%s: after the end: %v", state, err)
			}
		})
	}
}
