package node

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/backoff"
)

// The node stops everything in a pod while the pod's annotations say so
// (v1alpha1.FreezeOrdered), by the kernel's freezer, and says in the condition
// v1alpha1.PodConditionFrozen whether it has. Gateways order it for a sandbox whose
// processes its sandboxd has stopped already: the kernel stops sandboxd and PID 1 as well,
// and nothing in the pod can continue itself. Whatever ends a container thaws it first.

const (
	// freezePatience is how long the kernel may take to stop a pod's processes before the
	// node says so in its log; it goes on.
	freezePatience = time.Second
	// freezeAgain is the delay before a freeze or thaw that failed is tried again.
	freezeAgain = time.Second
)

// applyFreeze freezes the pod or thaws it, as its annotations say now. The caller need not
// wait for it.
func (p *pod) applyFreeze() {
	p.freezing.Lock() // the last to read the annotations is the last to act on them
	defer p.freezing.Unlock()
	if !p.rt.cgroups.canFreeze() || p.stop.Err() != nil { // the containers' own ends thaw them
		return
	}
	spec := p.current()
	frozen := v1alpha1.FreezeOrdered(spec)
	procs := p.processes()
	var errs []error
	for _, proc := range procs {
		if frozen {
			errs = append(errs, proc.freezer.freeze(proc.cgroup))
		} else {
			errs = append(errs, proc.freezer.thaw(proc.cgroup))
		}
	}
	if frozen && len(procs) > 0 {
		errs = append(errs, p.awaitFrozen(procs))
	}
	err := errors.Join(errs...)
	if err == nil {
		p.setFrozen(frozen && len(procs) > 0, spec.Annotations[v1alpha1.AnnotationFreezeGeneration])
	}
	if err != nil && p.stop.Err() == nil {
		p.rt.opts.Log.Warn("freeze or thaw a pod", "pod", p.current().Name, "frozen", frozen, "error", err)
		time.AfterFunc(freezeAgain, p.applyFreeze)
	}
}

// awaitFrozen waits until the kernel has stopped the processes, or the order is taken back,
// and then resets the machine's connections to the pod: a client whose request the pod had
// begun to answer learns at once that no answer comes now.
func (p *pod) awaitFrozen(procs []*process) error {
	delays := backoff.Doubling(100*time.Microsecond, 10*time.Millisecond)
	for begun := time.Now(); ; {
		left := 0
		for _, proc := range procs {
			if !proc.cgroup.frozen() {
				left++
			}
		}
		switch {
		case !v1alpha1.FreezeOrdered(p.current()):
			return nil // the next applyFreeze waits already
		case left == 0:
			addr := p.net.Addr()
			return sever(netip.PrefixFrom(addr, addr.BitLen()))
		case time.Since(begun) > freezePatience:
			return fmt.Errorf("%d of %d containers are not frozen after %s", left, len(procs), freezePatience)
		}
		if !backoff.Sleep(p.stop, delays.Step()) {
			return nil
		}
	}
}

// processes are the pod's running containers.
func (p *pod) processes() (procs []*process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.containers {
		if c.proc != nil {
			procs = append(procs, c.proc)
		}
	}
	return procs
}

// noteThawed notes that a container was thawed for its end. The order that was carried out
// last stays on record: an applyFreeze may be noting a newer one at this moment.
func (p *pod) noteThawed() {
	p.mu.Lock()
	changed := p.frozen
	p.frozen = false
	p.mu.Unlock()
	if changed {
		p.changed()
	}
}

// setFrozen notes what the condition is to say: whether the pod is frozen, and the generation
// of the order that was carried out.
func (p *pod) setFrozen(frozen bool, generation string) {
	p.mu.Lock()
	changed := p.frozen != frozen || p.freezeOrder != generation
	p.frozen, p.freezeOrder = frozen, generation
	p.mu.Unlock()
	if changed {
		p.changed()
	}
}
