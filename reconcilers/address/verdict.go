package address

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// pollBusy is how soon to ask again when nothing says how long it takes.
const pollBusy = 250 * time.Millisecond

// Verdict says whether an address may serve a new claim.
type Verdict struct {
	Free bool
	// Reason says what stands in the way, for people; empty if Free.
	Reason string
	// RetryAfter is when to ask again; 0 if Free.
	RetryAfter time.Duration
}

// and returns the stricter verdict: busy over free, then the longer wait.
func (v Verdict) and(o Verdict) Verdict {
	if v.Free || (!o.Free && o.RetryAfter > v.RetryAfter) {
		return o
	}
	return v
}

func busy(reason string, retry time.Duration) Verdict {
	return Verdict{Reason: reason, RetryAfter: retry}
}

// Decide judges the address by what is on record: pods are those that show it
// (see Shows), sandboxes those whose status has it; self is the pod that asks, and cooldown
// how long an address stays unused after its fence. It is pure.
func Decide(self types.UID, pods []corev1.Pod, sandboxes []v1alpha1.Sandbox, now time.Time, cooldown time.Duration) Verdict {
	verdict := Verdict{Free: true}
	for i := range pods {
		if p := &pods[i]; p.UID != self {
			verdict = verdict.and(busy(fmt.Sprintf("pod %s/%s shows it", p.Namespace, p.Name), pollBusy))
		}
	}
	for i := range sandboxes {
		s := &sandboxes[i]
		var fenced time.Time
		if s.Status.FencedAt != nil {
			fenced = s.Status.FencedAt.Time
		}
		verdict = verdict.and(judge(fenced, now, cooldown, "sandbox "+s.Name))
	}
	return verdict
}

// judge is the rule for one former owner. A fence in the future comes from a
// clock that was set back; it is not waited for here, since the ledger counts
// every late fence from when this process heard of it.
func judge(fencedAt, now time.Time, cooldown time.Duration, owner string) Verdict {
	if fencedAt.IsZero() {
		return busy(owner+" had it and is not fenced yet", pollBusy)
	}
	if age := now.Sub(fencedAt); age >= 0 && age < cooldown {
		return busy(owner+" had it until just now", cooldown-age)
	}
	return Verdict{Free: true}
}

// Shows lists the addresses that a pod shows: its IP, and the one it turned
// idle with.
func Shows(pod *corev1.Pod) []string {
	ip, noted := pod.Status.PodIP, pod.Annotations[v1alpha1.AnnotationAddress]
	switch {
	case ip == "" && noted == "":
		return nil
	case ip == noted || noted == "":
		return []string{ip}
	case ip == "":
		return []string{noted}
	default:
		return []string{ip, noted}
	}
}
