package index

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/routecache"
)

// reads answers shared reads, each after a while.
type slowReads struct {
	begun atomic.Int64
	state State
	err   error
}

const readTakes = 10 * time.Millisecond

func (r *slowReads) read(_, _ string) (Answer, error) {
	n := r.begun.Add(1)
	time.Sleep(readTakes)
	a := Answer{State: r.state, Generation: n}
	if r.state == Running {
		a.Route = &routecache.Route{}
	}
	return a, r.err
}

// A request is answered by a read that began after it came; all that come during one
// share the next.
func TestSharedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowReads{state: Running}
		x := newSharedReads(r.read)
		answers := make(chan Answer, 200)
		ask := func(key string, begun int64) {
			go func() {
				a, err := x.resolve(t.Context(), key, "s")
				if err != nil || a.Generation <= begun {
					t.Errorf("%v; read %d answers a request that came after %d had begun", err, a.Generation, begun)
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
		state State
		err   error
		most  int64
	}{{Paused, nil, 10}, {Running, nil, 101}, {Paused, errors.New("no"), 101}} {
		synctest.Test(t, func(t *testing.T) {
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
			time.Sleep(time.Second)
		})
	}
}

// A request that leaves does not end the read for the others.
func TestSharedReadIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowReads{state: Running}
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
		if a, err := x.resolve(t.Context(), "", "s"); err != nil || a.Generation != 2 {
			t.Errorf("%+v, %v", a, err)
		}
	})
}
