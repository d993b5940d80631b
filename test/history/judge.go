package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Answer is one answer of an echo server.
type Answer struct {
	ID         string // of the sandbox that was asked for
	Gateway    string
	PodUID     string
	Process    string
	Begin, End time.Time // of the request
}

// Judge returns why an answer is wrong, or nil. Call it when the watches have
// caught up with the answer.
func (r *Recorder) Judge(a Answer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other, known := r.processes[a.Process]; known && other != a.PodUID {
		return fmt.Errorf("process %s calls itself pod %s and pod %s", a.Process, other, a.PodUID)
	}
	r.processes[a.Process] = a.PodUID
	why := "is bound to no sandbox"
	for _, i := range r.byPod[a.PodUID] {
		switch {
		case i.ID != a.ID:
			why = "is bound to " + i.ID
		case !i.Over.IsZero() && i.Over.Before(a.Begin):
			why = fmt.Sprintf("was bound to it until %v before the request", a.Begin.Sub(i.Over))
		default:
			return nil
		}
	}
	return fmt.Errorf("%s asked for %s and was answered by pod %s (process %s), which %s", a.Gateway, a.ID, a.PodUID, a.Process, why)
}

// Claims returns a copy of every claim of a sandbox ID, in their order.
func (r *Recorder) Claims(id string) []Interval {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Interval
	for _, i := range r.claims {
		if i.ID == id {
			all = append(all, *i)
		}
	}
	slices.SortFunc(all, func(a, b Interval) int { return cmp.Compare(a.Seen, b.Seen) })
	return all
}

// Sandboxes is how many Sandbox objects an ID had, Pods how many pods carried it.
func (r *Recorder) Sandboxes(id string) int { return r.count(r.sandboxes, id) }

// Pods is how many pods ever carried the ID.
func (r *Recorder) Pods(id string) int { return r.count(r.pods, id) }

func (r *Recorder) count(of map[string]map[string]bool, id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(of[id])
}

// Reused is how many claims got an address that another Sandbox had before.
func (r *Recorder) Reused() int {
	return r.reused(func(_, _ *Interval) bool { return true })
}

// ReusedWithin is Reused for claims that came so soon after the end of the
// other Sandbox's was seen.
func (r *Recorder) ReusedWithin(d time.Duration) int {
	return r.reused(func(before, after *Interval) bool {
		return !before.EndSeen.IsZero() && after.Claimed.Sub(before.EndSeen) < d
	})
}

func (r *Recorder) reused(counts func(before, after *Interval) bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, list := range r.addresses {
		for k := 1; k < len(list); k++ {
			if list[k].ID != list[k-1].ID && counts(list[k-1], list[k]) {
				n++
			}
		}
	}
	return n
}

// UsedAfter reports whether an address serves a claim that is later than the
// one given.
func (r *Recorder) UsedAfter(i Interval) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.addresses[i.Address]
	return len(list) > 0 && list[len(list)-1].Seen > i.Seen
}

// Trouble lists why the record cannot be relied on; empty if it can. It also
// finds pods that two sandboxes had and addresses given on before their fence.
func (r *Recorder) Trouble() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := append([]string(nil), r.broken...)
	if r.behind > 0 {
		out = append(out, fmt.Sprintf("%d of the record's watches wait for the API server", r.behind))
	}
	for pod, list := range r.byPod {
		owners := map[string]bool{}
		for _, i := range list {
			if i.Address != "" { // the claim was applied
				owners[i.SandboxUID] = true
			}
		}
		if len(owners) > 1 {
			out = append(out, fmt.Sprintf("pod %s was claimed by %d sandboxes", pod, len(owners)))
		}
	}
	for address, list := range r.addresses {
		for k := 1; k < len(list); k++ {
			before, after := list[k-1], list[k]
			if before.PodUID != after.PodUID && (before.Over.IsZero() || after.Claimed.Before(before.overFrom)) {
				out = append(out, fmt.Sprintf("%s went to %s at %v while the claim of %s was not over (%v)", address, after.ID, after.Claimed, before.ID, before.Over))
			}
		}
	}
	return out
}

// Gaps is how often a watch broke and was begun again by a list.
func (r *Recorder) Gaps() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gaps
}
