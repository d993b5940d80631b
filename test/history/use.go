package history

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// JudgeRelease returns why the claim that gave an answer must not have been
// released for idleness, or nil. Call it when the watches have caught up.
//
// The gateway noted the use after the request began, by the clock of this
// machine, which is everybody's. The controller decided to end it before the
// second after the one that spec.end.at names, and may do so only if the last
// use is older than the idle timeout. So a request that began less than the
// timeout before that moment, or later, was overlooked. Of a request that began
// within the second before, the history cannot tell: the time of the end is cut
// off to the second.
func (r *Recorder) JudgeRelease(a Answer, idle time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.byPod[a.PodUID] {
		if i.ID != a.ID || i.Reason != v1alpha1.EndIdleTimeout {
			continue
		}
		if latest := i.Ended.Add(time.Second); a.Begin.After(latest.Add(-idle)) {
			return fmt.Errorf("%s answered for %s (claim %s) a request begun %v before it was released for idleness, with an idle timeout of %v",
				a.Gateway, a.ID, i.Claim, latest.Sub(a.Begin), idle)
		}
	}
	return nil
}

// applied are the claims made after a time that were seen on their pods. mu is
// held.
func (r *Recorder) applied(since time.Time) (out []*Interval) {
	for _, i := range r.claims {
		if i.Address != "" && i.Claimed.After(since) {
			out = append(out, i)
		}
	}
	return out
}

// Applied is how many claims made after a time were seen on their pods.
func (r *Recorder) Applied(since time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.applied(since))
}

// Ends counts why those that were made after a time ended.
func (r *Recorder) Ends(since time.Time) map[v1alpha1.EndReason]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[v1alpha1.EndReason]int{}
	for _, i := range r.applied(since) {
		if i.Reason != "" {
			out[i.Reason]++
		}
	}
	return out
}

// life is what a Sandbox runs in from one pod to the next that it hibernates in between.
type life struct {
	sandboxUID string
	number     int
}

// Doubled lists the Sandboxes of which more than one pod was claimed after a
// time: none, where no pod is lost. Pods that a Sandbox had one after the other, because it
// hibernated in between, are no more than one.
func (r *Recorder) Doubled(since time.Time) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pods := map[life]map[string]bool{} // UIDs of pods
	for _, i := range r.applied(since) {
		if l := (life{i.SandboxUID, i.life}); i.SandboxUID != "" {
			if pods[l] == nil {
				pods[l] = map[string]bool{}
			}
			pods[l][i.PodUID] = true
		}
	}
	for l, of := range pods {
		if len(of) > 1 {
			out = append(out, fmt.Sprintf("sandbox %s has had the %d pods %v", r.nameOf(l.sandboxUID), len(of), slices.Sorted(maps.Keys(of))))
		}
	}
	slices.Sort(out)
	return out
}

// nameOf is the ID of a Sandbox. mu is held.
func (r *Recorder) nameOf(uid string) string {
	for _, i := range r.claims {
		if i.SandboxUID == uid {
			return i.ID
		}
	}
	return uid
}
