package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// invariants holds after each step, whatever is under way.
func (m *model) invariants() {
	pods := m.pods()
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
		if q.at.After(q.Deadline.Add(m.pace.slack)) {
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
	m.crashed.Wait()
	for _, s := range m.schedulers {
		s.view.relist(s.PoolScheduler)
	}
	m.until(m.answered)
	m.lates.Wait()
	m.flush()
	m.world.calm()
	for _, s := range m.schedulers {
		s.view.relist(s.PoolScheduler)
	}
	m.until(m.atRest)
	m.invariants()
	m.everyoneIsAnswered()
	m.claimsAreOwned()
	m.stockIsWhole()
	for _, s := range m.schedulers {
		m.mu.Lock()
		s.dead.Store(true)
		m.mu.Unlock()
		m.bury(s)
	}
	m.crashed.Wait()
	m.pause()
	for _, q := range m.all {
		q.leave()
		m.total.count(q, m.notes(q))
	}
}

// answered: everybody was, and nothing is under way.
func (m *model) answered() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.all {
		if len(q.answered) == 0 && !q.of.dead.Load() {
			return false
		}
	}
	return !slices.ContainsFunc(m.schedulers, func(s *crashable) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.running > 0
	})
}

// atRest: no scheduler keeps anything back.
func (m *model) atRest() bool {
	return !slices.ContainsFunc(m.schedulers, func(s *crashable) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.running > 0 || s.stock.reserved() > 0 || s.waiting.len() > 0
	})
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

// boundTo is the pod that the sandbox's binding names, nil if there is none.
func (m *model) boundTo(q *asked) *corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return q.binding
}

// claimsAreOwned: a claim that no binding names is on no running pod, but for what a
// crash left.
func (m *model) claimsAreOwned() {
	owners := map[string]*asked{}
	for _, q := range m.all {
		owners[q.SandboxID] = q
	}
	for _, pod := range m.pods() {
		phase := v1alpha1.PhaseOf(pod)
		if pod.DeletionTimestamp != nil || phase != v1alpha1.PodRunning && phase != v1alpha1.PodStarting {
			continue
		}
		q := owners[pod.Labels[v1alpha1.LabelSandboxID]]
		var bound *corev1.Pod
		if q != nil {
			bound = m.boundTo(q)
		}
		named := bound != nil && BindingOf(bound).ClaimID == pod.Annotations[v1alpha1.AnnotationClaim]
		if !named && (q == nil || !q.of.dead.Load()) {
			m.breakf("pod %s carries a claim of %s that nothing names", pod.Name, pod.Labels[v1alpha1.LabelSandboxID])
		}
	}
}

// stockIsWhole: what is idle can be claimed from every scheduler, and nothing
// else is kept.
func (m *model) stockIsWhole() {
	idle := map[string]bool{}
	for _, pod := range m.pods() {
		if v1alpha1.PhaseOf(pod) == v1alpha1.PodIdle && pod.DeletionTimestamp == nil {
			idle[pod.Name] = true
		}
	}
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

// count notes what became of a request, which has met some more faults.
func (c *tally) count(q *asked, more []string) {
	outcome := "died with it"
	if len(q.answered) > 0 {
		outcome = outcomeName(q.answered[0].Err)
	}
	for _, f := range more {
		q.faults[f] = true
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
		{nil, "served"}, {context.Canceled, "cancelled"}, {writes.ErrStale, "bind lost"}, {ErrInvalid, "invalid"},
		{ErrForbidden, "forbidden"}, {ErrRefused, "refused"}, {ErrDeadline, "deadline"}, {ErrUnavailable, "unavailable"},
	} {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return "other: " + err.Error()
}
