package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/console/processes"
)

const (
	// staleLease is the age of a gateway's lease from which something is wrong: it is
	// renewed every ten seconds.
	staleLease = 30 * time.Second
	// slowFence is how long after its end a sandbox's address is fenced at the latest where
	// all gateways answer or lose their leases.
	slowFence = time.Minute
	// certificateWarning is how many days before its end a certificate is worth a look, and
	// certificateLate when it is urgent.
	certificateWarning, certificateLate = 14, 3
	// recentFailure is for how long a failed snapshot counts.
	recentFailure = time.Hour
)

// Check says what is wrong with an installation, the worst first.
func Check(in Installation) []Finding {
	if in.Undefined {
		return []Finding{{Bad, "the cluster", "Sandlane is not installed, or not completely", "see what `helm status sandlane -n sandlane-system` and the pods there say (docs/install.md), or name another cluster"}}
	}
	var found []Finding
	for _, text := range in.Unread {
		found = append(found, Finding{Note, "your rights", text, "ask an administrator for the rights that docs/operations.md lists for `sandlane console`"})
	}
	for i := range in.Pools {
		found = append(found, ofPool(&in.Pools[i])...)
	}
	for i := range in.Envs {
		found = append(found, ofEnv(&in.Envs[i])...)
	}
	found = append(found, ofGateways(in)...)
	for i := range in.Checkpoints {
		found = append(found, ofCheckpoint(&in.Checkpoints[i], in.Now)...)
	}
	found = append(found, ofSandboxes(in.Sandboxes, in.Now)...)
	rank := map[Level]int{Bad: 0, Warn: 1, Note: 2}
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Or(rank[a.Level]-rank[b.Level], strings.Compare(a.About, b.About))
	})
	return found
}

func conditionOf(conditions []metav1.Condition, kind string, status metav1.ConditionStatus) *metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Status == status {
		return c
	}
	return nil
}

// ofPool says why a pool has no stock, and which claims wait.
func ofPool(p *v1alpha1.SandboxPool) []Finding {
	about := "pool " + p.Namespace + "/" + p.Name
	degraded := conditionOf(p.Status.Conditions, v1alpha1.PoolConditionDegraded, metav1.ConditionTrue)
	available := conditionOf(p.Status.Conditions, v1alpha1.PoolConditionAvailable, metav1.ConditionFalse)
	waiting := int(p.Status.WaitingClaims)
	level, who := Warn, ""
	if waiting > 0 {
		level, who = Bad, fmt.Sprintf("; %s for a pod", count(waiting, "request waits", "requests wait"))
	}
	switch {
	case degraded != nil:
		if p.Status.Idle == p.Status.UnavailableIdle {
			level = Bad
		}
		return []Finding{{level, about, degraded.Reason + ": " + degraded.Message + who, adviceOfPool(p, degraded)}}
	case available == nil:
		return nil
	case available.Reason == v1alpha1.PoolReasonMaxPods || available.Reason == v1alpha1.PoolReasonQuota:
		return []Finding{{Bad, about, available.Reason + ": " + available.Message + who, adviceOfPool(p, available)}}
	case waiting > 0:
		return []Finding{{level, about, "no stock: " + available.Message + who, adviceOfPool(p, available)}}
	case available.Reason == "NoIdlePod":
		return []Finding{{Warn, about, "no stock: " + available.Message, adviceOfPool(p, available)}}
	}
	return nil
}

// adviceOfPool says what helps against a condition Degraded or a missing stock.
func adviceOfPool(p *v1alpha1.SandboxPool, c *metav1.Condition) string {
	get := fmt.Sprintf("kubectl -n %s describe sandboxpool %s", p.Namespace, p.Name)
	switch c.Reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		return "correct the image in the pool's template, or the registry's access (imagePullSecrets): " + get
	case v1alpha1.PoolReasonQuota:
		return fmt.Sprintf("raise the ResourceQuota, or end sandboxes: kubectl -n %s describe resourcequota", p.Namespace)
	case v1alpha1.PoolReasonMaxPods:
		return fmt.Sprintf("raise spec.maxPods (now %d), or end sandboxes", p.Spec.MaxPods)
	case "Unschedulable":
		return "add nodes, or ask for less in the template: " + get
	case string(metav1.StatusReasonForbidden):
		if strings.Contains(c.Message, v1alpha1.LabelPools) {
			return fmt.Sprintf("allow pools there: kubectl label namespace %s %s=%s", p.Namespace, v1alpha1.LabelPools, v1alpha1.PoolsAllowed)
		}
		return "admission refuses the template's pods: change the template, or what refuses it: " + get
	case "NoReplicas":
		return "pods are being made for the requests that wait; raise spec.replicas to keep some ready"
	case "NoIdlePod":
		return fmt.Sprintf("raise spec.replicas (now %d) if this lasts: %s", p.Spec.Replicas, get)
	}
	return get
}

func ofEnv(e *v1alpha1.SandboxEnv) []Finding {
	about := "env " + e.Namespace + "/" + e.Name
	get := fmt.Sprintf("kubectl -n %s describe sandboxenv %s", e.Namespace, e.Name)
	if c := conditionOf(e.Status.Conditions, v1alpha1.EnvConditionTemplateConsistent, metav1.ConditionFalse); c != nil {
		return []Finding{{Bad, about, c.Reason + ": " + c.Message, get}}
	}
	if c := conditionOf(e.Status.Conditions, v1alpha1.EnvConditionReady, metav1.ConditionFalse); c != nil {
		level := Warn
		if e.Status.Waiting > 0 {
			level = Bad
		}
		do := get
		if e.Status.Members > 0 {
			do = "see its members' pools; " + get
		}
		return []Finding{{level, about, "no member has stock: " + c.Message, do}}
	}
	return nil
}

func ofGateways(in Installation) []Finding {
	var found []Finding
	for i := range in.Leases {
		found = append(found, Gateway(&in.Leases[i], in)...)
	}
	if len(in.Leases) == 0 && in.Leases != nil {
		found = append(found, Finding{Bad, "gateways", "none has a lease: no request reaches a sandbox", "see whether their pods run and what their logs say"})
	}
	return found
}

// Gateway says what is wrong with the gateway that a lease is of.
func Gateway(l *coordinationv1.Lease, in Installation) []Finding {
	about := "gateway " + GatewayName(l)
	if age := LeaseAge(l, in.Now); age > staleLease {
		return []Finding{{Bad, about,
			fmt.Sprintf("its lease was last renewed %s ago: it is cut off from the API server, or gone, and answers no request; ends of sandboxes wait for it", duration.HumanDuration(age)),
			"see its log and whether its node reaches the API server; if it is gone for good, delete its pod"}}
	}
	m, asked := in.Gateways[l.Name]
	switch {
	case !asked:
		return nil
	case m.Err != nil:
		return []Finding{{Note, about, "it was not asked: " + oneLine(m.Err.Error()), "its lease is renewed, so it works; reading metrics needs the right to get pods/proxy"}}
	case !m.Held:
		return []Finding{{Bad, about, "it does not hold its lease, so it answers no request", "see its log; it must reach the API server and the controller"}}
	}
	return append(ofStore(about, m), ofCertificate(about, m)...)
}

func ofStore(about string, m processes.Metrics) []Finding {
	if !m.StoreFull {
		return nil
	}
	return []Finding{{Bad, about, "the checkpoint store is full: snapshots are refused (507), and sandboxes that hibernate stay frozen",
		"enlarge its volume, or delete snapshots: kubectl get checkpoints -A"}}
}

func ofCertificate(about string, m processes.Metrics) []Finding {
	if m.CertificateDays < 0 || m.CertificateDays >= certificateWarning {
		return nil
	}
	level, text := Warn, fmt.Sprintf("the certificate that clients see ends in %s", count(m.CertificateDays, "day", "days"))
	if m.CertificateDays < certificateLate {
		level = Bad
	}
	return []Finding{{level, about, text, "renew the TLS Secret (envoy.tlsSecret of the chart); Envoy takes up a new one by itself"}}
}

func ofCheckpoint(c *v1alpha1.Checkpoint, now time.Time) []Finding {
	about := "checkpoint " + c.Namespace + "/" + c.Name
	switch {
	case c.Status.Phase == v1alpha1.CheckpointFailed && now.Sub(c.CreationTimestamp.Time) < recentFailure:
		return []Finding{{Warn, about, fmt.Sprintf("files of sandbox %s were not kept: %s", c.Spec.SandboxID, c.Status.Message), "see the gateways' logs, and whether the checkpoint store has room and answers"}}
	case c.Status.Phase == v1alpha1.CheckpointTerminating && c.DeletionTimestamp != nil && now.Sub(c.DeletionTimestamp.Time) > 5*time.Minute:
		return []Finding{{Warn, about, "its data is not deleted: " + c.Status.Message, "see the controller's log, and whether it can write to the checkpoint store"}}
	}
	return nil
}

// ofSandboxes counts what has trouble, so that a thousand of them are one line.
func ofSandboxes(all []*v1alpha1.Sandbox, now time.Time) []Finding {
	var found []Finding
	type group struct {
		first   string
		n       int
		message string
	}
	paused, unfenced := map[string]*group{}, &group{}
	for _, s := range all {
		if s.Status.Phase == v1alpha1.SandboxEnded && s.Status.FencedAt == nil && s.Status.Address != "" &&
			s.Status.EndedAt != nil && now.Sub(s.Status.EndedAt.Time) > slowFence {
			unfenced.n++
			unfenced.first = cmp.Or(unfenced.first, s.Name)
		}
		if c := pauseTrouble(s); c != nil {
			g := paused[c.Reason]
			if g == nil {
				g = &group{first: s.Name, message: c.Message}
				paused[c.Reason] = g
			}
			g.n++
		}
	}
	for reason, g := range paused {
		level := Warn
		if reason == v1alpha1.ReasonUnanswered {
			level = Bad
		}
		found = append(found, Finding{level, "sandboxes", fmt.Sprintf("%s: %s, %s first: %s", reason, count(g.n, "sandbox", "sandboxes"), g.first, g.message), adviceOfPause(reason)})
	}
	if unfenced.n > 0 {
		found = append(found, Finding{Warn, "sandboxes", fmt.Sprintf("%s ended more than a minute ago and not fenced, %s first: their addresses stay unused until each gateway has acknowledged", count(unfenced.n, "sandbox", "sandboxes"), unfenced.first), "see which gateway does not answer, above or in the controller's log"})
	}
	return found
}

// pauseTrouble is the condition of a pause or resume that does not go on; nil if none.
func pauseTrouble(s *v1alpha1.Sandbox) *metav1.Condition {
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SandboxConditionPaused)
	if s.Spec.End != nil || c == nil {
		return nil
	}
	switch c.Reason {
	case v1alpha1.ReasonSaveFailed, v1alpha1.ReasonUnanswered, v1alpha1.ReasonFreezeFailed, v1alpha1.ReasonNoFreezer:
		return c
	}
	return nil
}

func adviceOfPause(reason string) string {
	switch reason {
	case v1alpha1.ReasonSaveFailed:
		return "the sandbox stays frozen and it is tried again: see whether the checkpoint store is full (kubectl get checkpoints -A)"
	case v1alpha1.ReasonUnanswered:
		return "see whether the pod's node is well, and whether gateways have the pod's init key"
	case v1alpha1.ReasonNoFreezer:
		return "pods of this template cannot be frozen: one container that runs sandboxd, without a liveness probe"
	}
	return "see the gateways' logs"
}

// LeaseAge is how long ago a gateway renewed its lease.
func LeaseAge(l *coordinationv1.Lease, now time.Time) time.Duration {
	if l.Spec.RenewTime == nil {
		return now.Sub(l.CreationTimestamp.Time)
	}
	return max(0, now.Sub(l.Spec.RenewTime.Time))
}

// GatewayName is the gateway's name without its pod's UID.
func GatewayName(l *coordinationv1.Lease) string {
	return strings.TrimSuffix(l.Name, "-"+cmp.Or(l.Annotations[v1alpha1.AnnotationGatewayPod], "-"))
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
