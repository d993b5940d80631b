package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

var errClosed = errors.New("sandboxd is shutting down")

// registry has the processes that run and, for a while, those that have ended.
type registry struct {
	retention time.Duration

	mu      sync.Mutex // guards all below
	procs   map[uint32]*proc
	expiry  map[*proc]*time.Timer
	closed  bool
	running sync.WaitGroup
}

// add records a process and runs it in the background.
func (r *registry) add(p *proc, run func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return connect.NewError(connect.CodeUnavailable, errClosed)
	}
	r.procs[p.pid] = p // replaces an ended process that had the same pid
	r.running.Go(func() {
		run()
		r.retain(p)
	})
	return nil
}

func (r *registry) retain(p *proc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.expiry[p] = time.AfterFunc(r.retention, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.expiry, p)
		if r.procs[p.pid] == p {
			delete(r.procs, p.pid)
		}
	})
}

// find returns the process of a selector; one that has ended only if ended is true. By tag it
// prefers a running process, and then the highest pid.
func (r *registry) find(selector *processpb.ProcessSelector, ended bool) (*proc, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch s := selector.GetSelector().(type) {
	case *processpb.ProcessSelector_Pid:
		if p := r.procs[s.Pid]; p != nil && (ended || p.hub.endEvent() == nil) {
			return p, nil
		}
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", s.Pid))
	case *processpb.ProcessSelector_Tag:
		var lastEnded *proc
		for _, p := range r.sorted() {
			if p.tag == nil || *p.tag != s.Tag {
				continue
			}
			if p.hub.endEvent() == nil {
				return p, nil
			}
			lastEnded = cmp.Or(lastEnded, p)
		}
		if lastEnded != nil && ended {
			return lastEnded, nil
		}
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with tag %s not found", s.Tag))
	}
	return nil, connect.NewError(connect.CodeUnimplemented, errors.New("no process selected: send a pid or a tag"))
}

// list returns the running processes by pid.
func (r *registry) list() []*processpb.ProcessInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	var infos []*processpb.ProcessInfo
	for _, p := range slices.Backward(r.sorted()) {
		if p.hub.endEvent() == nil {
			infos = append(infos, &processpb.ProcessInfo{Config: p.config, Pid: p.pid, Tag: p.tag})
		}
	}
	return infos
}

// sorted returns all processes, the highest pid first. Call it with mu held.
func (r *registry) sorted() []*proc {
	all := make([]*proc, 0, len(r.procs))
	for _, p := range r.procs {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *proc) int { return cmp.Compare(b.pid, a.pid) })
	return all
}

// close refuses new processes, terminates the running ones, and kills those that are left
// when the context ends. It returns when all have ended.
func (r *registry) close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	for _, timer := range r.expiry {
		timer.Stop()
	}
	clear(r.expiry)
	all := r.sorted()
	r.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		r.running.Wait()
		close(ended)
	}()
	signalAll(all, syscall.SIGTERM)
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	signalAll(all, syscall.SIGKILL)
	<-ended
}

func signalAll(procs []*proc, sig syscall.Signal) {
	for _, p := range procs {
		_, _ = p.signal(sig) // if one fails, the others are still signalled
	}
}
