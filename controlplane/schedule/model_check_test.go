package schedule

import (
	"context"
	"errors"
	"fmt"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// invariants holds after each step, whatever is under way.
func (m *model) invariants() {
	m.api.mu.Lock()
	pods := make([]*corev1.Pod, 0, len(m.api.pods))
	for _, p := range m.api.pods {
		pods = append(pods, p.DeepCopy())
	}
	m.api.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	say := func(format string, args ...any) { m.broken = append(m.broken, fmt.Sprintf(format, args...)) }
	for _, pod := range pods {
		claim := pod.Annotations[v1alpha1.AnnotationClaim]
		if claim == "" {
			continue
		}
		if was, seen := m.claimed[pod.UID]; seen && was != claim {
			say("pod %s carried claim %s and carries %s", pod.Name, was, claim)
		}
		if on, seen := m.claimedPod[claim]; seen && on != pod.UID {
			say("claim %s is on %s and on %s", claim, on, pod.UID)
		}
		m.claimed[pod.UID], m.claimedPod[claim] = claim, pod.UID
	}
	served := map[string]string{}
	for _, q := range m.all {
		if len(q.answered) == 0 {
			continue
		}
		if q.at.After(q.Deadline) {
			say("request %s was answered %v late", q.SandboxID, q.at.Sub(q.Deadline))
		}
		pod := q.answered[0].Pod
		if pod == nil {
			continue
		}
		if other, taken := served[pod.Name]; taken {
			say("pod %s serves %s and %s", pod.Name, other, q.SandboxID)
		}
		served[pod.Name] = q.SandboxID
		if q.answered[0].Err != nil || pod.Labels[v1alpha1.LabelSandboxID] != q.SandboxID {
			say("request %s was given pod %s of sandbox %s (%v)", q.SandboxID, pod.Name, pod.Labels[v1alpha1.LabelSandboxID], q.answered[0].Err)
		}
		if q.binding == nil || !q.ended && BindingOf(q.binding).ClaimID != pod.Annotations[v1alpha1.AnnotationClaim] {
			say("request %s was given pod %s, which its sandbox does not name", q.SandboxID, pod.Name)
		}
	}
}

// finish ends the trouble and checks what must come right in the end.
func (m *model) finish() {
	m.mu.Lock()
	m.calm = true
	m.mu.Unlock()
	time.Sleep(2 * time.Minute) // every deadline and every settling is over
	m.flush()
	for _, s := range m.schedulers {
		m.relist(s)
	}
	time.Sleep(DefaultReservationTTL)
	synctest.Wait()
	m.invariants()
	m.everyoneIsAnswered()
	m.claimsAreOwned()
	m.stockIsWhole()
	for _, s := range m.schedulers {
		m.mu.Lock()
		s.dead.Store(true)
		m.mu.Unlock()
		m.crashed.Go(func() { s.Shutdown(); <-s.done })
	}
	m.crashed.Wait()
	synctest.Wait()
	for _, q := range m.all {
		q.leave()
		m.total.count(q)
	}
}

// everyoneIsAnswered: once, except by a scheduler that crashed.
func (m *model) everyoneIsAnswered() {
	for _, q := range m.all {
		m.mu.Lock()
		n := len(q.answered) + len(q.ResultCh)
		m.mu.Unlock()
		if n != 1 && !q.of.dead.Load() {
			m.breakf("request %s has %d answers", q.SandboxID, n)
		}
	}
}

// claimsAreOwned: a claim that nobody's binding names is on no running pod, but
// for what a crash left.
func (m *model) claimsAreOwned() {
	owners := map[string]*asked{}
	for _, q := range m.all {
		owners[q.SandboxID] = q
	}
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	for name, pod := range m.api.pods {
		if v1alpha1.PhaseOf(pod) != v1alpha1.PodRunning && v1alpha1.PhaseOf(pod) != v1alpha1.PodStarting {
			continue
		}
		q := owners[pod.Labels[v1alpha1.LabelSandboxID]]
		named := q != nil && q.binding != nil && BindingOf(q.binding).ClaimID == pod.Annotations[v1alpha1.AnnotationClaim]
		if !named && (q == nil || !q.of.dead.Load()) {
			m.breakf("pod %s carries a claim of %s that nothing names", name, pod.Labels[v1alpha1.LabelSandboxID])
		}
	}
}

// stockIsWhole: what is idle can be claimed from every scheduler, and nothing
// else is kept.
func (m *model) stockIsWhole() {
	idle := map[string]bool{}
	m.api.mu.Lock()
	for name, pod := range m.api.pods {
		if v1alpha1.PhaseOf(pod) == v1alpha1.PodIdle {
			idle[name] = true
		}
	}
	m.api.mu.Unlock()
	for i, s := range m.schedulers {
		s.mu.Lock()
		for _, rec := range s.stock.queue {
			if !idle[rec.name] {
				m.breakf("scheduler %d offers pod %s, which is not idle", i, rec.name)
			}
		}
		if len(s.stock.queue) != len(idle) || s.stock.reserved() != 0 || s.waiting.len() != 0 || s.running != 0 {
			m.breakf("scheduler %d: %d of %d idle pods ready, %d reserved, %d wait, %d under way",
				i, len(s.stock.queue), len(idle), s.stock.reserved(), s.waiting.len(), s.running)
		}
		s.mu.Unlock()
	}
}

// count notes what became of a request.
func (c *tally) count(q *asked) {
	outcome := "died with it"
	if len(q.answered) > 0 {
		outcome = outcomeName(q.answered[0].Err)
	}
	if len(q.faults) == 0 {
		c.add("none", outcome)
	}
	for f := range q.faults {
		c.add(f, outcome)
	}
}

func outcomeName(err error) string {
	for _, o := range []struct {
		err  error
		name string
	}{
		{nil, "served"}, {context.Canceled, "cancelled"}, {ErrBindLost, "bind lost"}, {ErrInvalid, "invalid"},
		{ErrForbidden, "forbidden"}, {ErrRefused, "refused"}, {ErrDeadline, "deadline"}, {ErrUnavailable, "unavailable"},
	} {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return "other: " + err.Error()
}
