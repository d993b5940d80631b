package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/podstate"
)

// Report answers "what is wrong with this sandbox", on one screen.
type Report struct {
	ID, State string
	// Lines are facts by name, in the order in which they are shown.
	Lines [][2]string
	// Findings are the answer, the sandbox's own first. Empty means that nothing is wrong.
	Findings []Finding
	// Events and Logged are the newest, the newest last.
	Events, Logged []string
	Unread         []string
}

// mostLines bounds the Events and the lines of logs of a report: it is one screen.
const mostLines = 8

// Sandbox explains a sandbox.
func Sandbox(f Facts) Report {
	r := Report{ID: f.ID, State: "not there", Unread: f.Unread, Events: events(f), Logged: last(f.Logged, mostLines)}
	s := f.Sandbox
	if s == nil {
		text := "there is no record of it: it never was, or its record was deleted some time after its end"
		if len(f.Waiting) > 0 {
			text += ", or its first request waits for a pod"
		}
		r.Findings = []Finding{{Bad, "sandbox " + f.ID, text,
			"check the spelling; a request makes a sandbox of this ID only from a pool with spec.firstRequest; the logs below may name it"}}
		for i := range f.Waiting {
			r.Findings = append(r.Findings, ofPool(&f.Waiting[i])...)
		}
		if len(f.Unread) > 0 {
			r.State, r.Findings = "unknown", nil
		}
		return r
	}
	r.State = state(s, f.Now)
	r.Lines = [][2]string{{"made", made(s, f.Now)}, {"pod", podLine(s, f.Pod)}, {"used", used(s, f)}, {"ends", ends(s, f)}}
	if l := pauseLine(s, f); l != "" {
		r.Lines = append(r.Lines, [2]string{"pause", l})
	}
	r.Lines = append(r.Lines, [2]string{"gateways", gatewaysLine(f.Installation)})
	r.Findings = ofSandbox(s, f)
	if s.Spec.End == nil {
		r.Findings = append(r.Findings, dependsOn(f)...)
	}
	return r
}

func state(s *v1alpha1.Sandbox, now time.Time) string {
	phase := string(cmp.Or(s.Status.Phase, v1alpha1.SandboxPending))
	if s.Spec.End != nil {
		return fmt.Sprintf("%s (%s), %s ago", phase, s.Spec.End.Reason, ago(now, s.Spec.End.At.Time))
	}
	return phase + ", " + ago(now, s.CreationTimestamp.Time) + " old"
}

func made(s *v1alpha1.Sandbox, now time.Time) string {
	by := "by the REST API or by hand"
	if s.Spec.FirstRequest {
		by = "by a first request"
	}
	from := "pool " + s.Spec.Namespace + "/" + cmp.Or(s.Spec.Pool, "(none yet)")
	if s.Spec.Env != "" {
		from = "env " + s.Spec.Namespace + "/" + s.Spec.Env + ", " + from
	}
	owner := "of no team"
	if s.Spec.Team != "" {
		owner = "of team " + s.Spec.Team
	}
	if key := s.Annotations[v1alpha1.AnnotationOwner]; key != "" {
		owner += ", made with API key " + key
	}
	return fmt.Sprintf("%s ago %s, from %s; %s", ago(now, s.CreationTimestamp.Time), by, from, owner)
}

func podLine(s *v1alpha1.Sandbox, pod *corev1.Pod) string {
	b := s.Spec.Binding
	switch {
	case b == nil && v1alpha1.WithoutPod(s):
		return "none: its files are in checkpoint " + s.Spec.Namespace + "/" + s.Spec.Restore.Checkpoint
	case b == nil:
		return "none: it has not got one"
	case pod == nil:
		at := ""
		if s.Status.Stop != nil && s.Status.Stop.NodeName != "" {
			at = " (it was on node " + s.Status.Stop.NodeName + ")"
		}
		return s.Spec.Namespace + "/" + b.PodName + ", which is gone" + at
	case !v1alpha1.Backs(pod, s):
		return s.Spec.Namespace + "/" + b.PodName + ", which is not this sandbox's now"
	}
	text := fmt.Sprintf("%s/%s on node %s at %s, %s", pod.Namespace, pod.Name, cmp.Or(pod.Spec.NodeName, "(none)"),
		cmp.Or(v1alpha1.RoutableAddress(pod), "no address that may be used"), v1alpha1.PhaseOf(pod))
	restarts := int32(0)
	for i := range pod.Status.ContainerStatuses {
		restarts += pod.Status.ContainerStatuses[i].RestartCount
	}
	if restarts > 0 {
		text += fmt.Sprintf(", %d restarts", restarts)
	}
	return text
}

func used(s *v1alpha1.Sandbox, f Facts) string {
	if s.Status.LastActive == nil {
		return "no gateway has noted a use yet (a minute late at most)"
	}
	return "last " + ago(f.Now, s.Status.LastActive.Time) + " ago, as gateways noted it"
}

func ends(s *v1alpha1.Sandbox, f Facts) string {
	if s.Spec.End != nil {
		return "it has"
	}
	var when []string
	if at := s.Spec.Timeouts.EndAt; at != nil {
		when = append(when, "at "+at.UTC().Format(time.RFC3339))
	}
	idle := s.Spec.Timeouts.Idle
	if idle == nil && f.Pool != nil {
		idle = f.Pool.Spec.IdleTimeout
	}
	switch {
	case idle == nil:
		when = append(when, "when it was unused for as long as its template says (5m without)")
	case idle.Duration > 0:
		when = append(when, "when it was unused for "+idle.Duration.String())
	}
	if len(when) == 0 {
		return "by hand alone"
	}
	does := "ends "
	if s.Spec.Timeouts.OnTimeout == v1alpha1.TimeoutPause {
		does = "is paused "
	}
	return does + strings.Join(when, ", or ")
}

func pauseLine(s *v1alpha1.Sandbox, f Facts) string {
	if !v1alpha1.EverPaused(s) {
		return ""
	}
	who := "requests are refused until it is resumed"
	if v1alpha1.ResumedByRequests(s) {
		who = "a request resumes it"
	}
	c := "its pod has not said anything yet"
	for i := range s.Status.Conditions {
		if s.Status.Conditions[i].Type == v1alpha1.SandboxConditionPaused {
			c = s.Status.Conditions[i].Reason + " " + s.Status.Conditions[i].Message
		}
	}
	if !s.Spec.Paused {
		return "not now (" + oneLine(c) + ")"
	}
	return fmt.Sprintf("%s: %s; %s", s.Spec.PauseMode, oneLine(c), who)
}

func gatewaysLine(in Installation) string {
	if in.Leases == nil {
		return "not known"
	}
	var all []string
	for i := range in.Leases {
		l := &in.Leases[i]
		text := GatewayName(l) + ": lease " + short(LeaseAge(l, in.Now)) + " old"
		if m, asked := in.Gateways[l.Name]; asked && m.Err == nil {
			text += fmt.Sprintf(", %d routes, %d waiting, fast path %s", m.Routes, m.Waiting, m.FastPath)
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return "none has a lease"
	}
	return strings.Join(all, "; ")
}

// ofSandbox are the findings about the sandbox itself: why it ended, or why it does not
// run.
func ofSandbox(s *v1alpha1.Sandbox, f Facts) []Finding {
	about := "sandbox " + s.Name
	if s.Spec.End != nil {
		return ofEnd(s, about)
	}
	var found []Finding
	if s.DeletionTimestamp != nil {
		found = append(found, Finding{Note, about, "it was deleted and is ending", ""})
	}
	if c := pauseTrouble(s); c != nil {
		found = append(found, Finding{Bad, about, c.Reason + ": " + c.Message, adviceOfPause(c.Reason)})
	}
	if f.Pod != nil && v1alpha1.Backs(f.Pod, s) {
		if d := podstate.BuildSandboxStatusDetailFromPod(f.Pod); d != nil {
			found = append(found, Finding{Bad, "pod " + f.Pod.Name, d.Reason + ": " + d.Message, fmt.Sprintf("kubectl -n %s logs %s --previous", f.Pod.Namespace, f.Pod.Name)})
		}
	}
	if f.Checkpoint != nil {
		found = append(found, ofCheckpoint(f.Checkpoint, f.Now)...)
	}
	switch {
	case s.Spec.Paused && !v1alpha1.ResumedByRequests(s):
		found = append(found, Finding{Note, about, "it is paused, so requests are refused", "resume it: the SDK's connect, or the console"})
	case s.Spec.Binding == nil && !s.Spec.Paused:
		found = append(found, Finding{Warn, about, "it waits for a pod", "see its pool below"})
	case s.Spec.Binding != nil && f.Pod == nil && f.podRead():
		found = append(found, Finding{Bad, about, "its pod is gone; the controller ends it", ""})
	}
	return found
}

// podRead reports whether the pod could be looked for.
func (f *Facts) podRead() bool {
	for _, text := range f.Unread {
		if strings.HasPrefix(text, "pod") {
			return false
		}
	}
	return true
}

// ofEnd says why a sandbox ended.
func ofEnd(s *v1alpha1.Sandbox, about string) []Finding {
	e := s.Spec.End
	text := "ended: " + string(e.Reason)
	if e.Message != "" {
		text += ": " + e.Message
	}
	if st := s.Status.Stop; st != nil && st.FailureReason != "" {
		text += fmt.Sprintf(" (pod: %s: %s", st.FailureReason, st.FailureMessage)
		if st.ExitCode != nil {
			text += fmt.Sprintf(", exit code %d", *st.ExitCode)
		}
		text += ")"
	}
	level := Note
	if e.Reason == v1alpha1.EndFailed || e.Reason == v1alpha1.EndStartupTimeout {
		level = Bad
	}
	found := []Finding{{level, about, text, adviceOfEnd(s)}}
	if s.Status.Phase != v1alpha1.SandboxEnded {
		found = append(found, Finding{Note, about, "the end is being carried out", ""})
	}
	return found
}

func adviceOfEnd(s *v1alpha1.Sandbox) string {
	if st := s.Status.Stop; st != nil && st.FailureReason == "OOMKilled" {
		return "raise the memory limit in the pool's template"
	}
	switch s.Spec.End.Reason {
	case v1alpha1.EndIdleTimeout:
		return "raise the pool's spec.idleTimeout, or pause at a timeout: spec.pause.onTimeout"
	case v1alpha1.EndEndAt:
		return "ask for a longer timeout when the sandbox is made, or set it anew while it runs"
	case v1alpha1.EndStartupTimeout:
		return "see the Events below; raise the pool's spec.startupTimeout if the image only needs longer"
	case v1alpha1.EndPauseTimeout:
		return "raise the pool's spec.pause.pausedFor"
	case v1alpha1.EndFailed:
		return "see the Events and logs below"
	}
	return ""
}

// dependsOn are the installation's findings that this sandbox depends on.
func dependsOn(f Facts) []Finding {
	var found []Finding
	s := f.Sandbox
	if f.Pool != nil && s.Spec.Binding == nil {
		found = ofPool(f.Pool)
	}
	if v1alpha1.WithoutPod(s) && f.Pool == nil && s.Spec.Pool != "" {
		found = append(found, Finding{Bad, "pool " + s.Spec.Namespace + "/" + s.Spec.Pool, "it is gone, and the sandbox's files can be restored in it alone", ""})
	}
	return append(found, ofGateways(f.Installation)...)
}

func ago(now, at time.Time) string { return duration.HumanDuration(max(0, now.Sub(at))) }

// short is a duration as people say it, with tenths below ten seconds.
func short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return duration.HumanDuration(d)
}

func last(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }
