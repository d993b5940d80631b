package v1alpha1

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PauseMode says what is kept of a paused sandbox.
// +kubebuilder:validation:Enum=Freeze;Hibernate
type PauseMode string

// The pause modes.
const (
	// PauseFreeze keeps all: memory, processes, files, address and pod. Only the
	// processor is given up.
	PauseFreeze PauseMode = "Freeze"
	// PauseHibernate keeps the files and what the sandbox was made with: ID, tokens,
	// environment and rules. Memory, processes, address and pod are given up.
	PauseHibernate PauseMode = "Hibernate"
)

// TimeoutAction says what becomes of a sandbox whose time is up.
// +kubebuilder:validation:Enum=Kill;Pause
type TimeoutAction string

// The timeout actions.
const (
	TimeoutKill  TimeoutAction = "Kill"
	TimeoutPause TimeoutAction = "Pause"
)

// AutoResume says whether requests resume a paused sandbox.
// +kubebuilder:validation:Enum=Never;WithMemory;Always
type AutoResume string

// The kinds of auto-resume.
const (
	AutoResumeNever AutoResume = "Never"
	// AutoResumeWithMemory resumes what has kept its memory.
	AutoResumeWithMemory AutoResume = "WithMemory"
	AutoResumeAlways     AutoResume = "Always"
)

const (
	// minAutoLifetime is the least that a sandbox runs after a request has resumed it.
	minAutoLifetime = 5 * time.Minute
	// MaxLifetime is the most that a sandbox runs after the REST API has made or resumed it,
	// or a request has resumed it.
	MaxLifetime = 24 * time.Hour
)

// ResumesFrozen reports whether a request may resume a sandbox that was frozen, which has
// its memory.
func ResumesFrozen(a AutoResume) bool { return a == AutoResumeWithMemory || a == AutoResumeAlways }

// ResumedByRequests reports whether a request may resume the sandbox if it is paused: one
// that hibernates, or is about to, has no memory then.
func ResumedByRequests(s *Sandbox) bool {
	if s.Spec.Restore != nil || Saving(s) {
		return s.Spec.Timeouts.AutoResume == AutoResumeAlways
	}
	return ResumesFrozen(s.Spec.Timeouts.AutoResume)
}

// TimeoutMode is what is kept of a sandbox that a timeout pauses.
func TimeoutMode(s *Sandbox) PauseMode {
	if m := s.Spec.Timeouts.OnTimeoutMode; m != "" {
		return m
	}
	return PauseFreeze
}

// EndAfter is the end time of a sandbox that is to run for d from now on. An API server
// keeps whole seconds: it is the next one in UTC, since to end a sandbox early is worse
// than late. The sandbox runs for at least d, and for a second more at most.
func EndAfter(now time.Time, d time.Duration) *metav1.Time {
	return new(metav1.NewTime(now.Add(d).UTC().Truncate(time.Second).Add(time.Second)))
}

// AutoLifetime is how long a sandbox may run after a request has resumed it: its lifetime,
// from five minutes to MaxLifetime; five minutes without one.
func AutoLifetime(s *Sandbox) time.Duration {
	if l := s.Spec.Timeouts.Lifetime; l != nil {
		return min(max(l.Duration, minAutoLifetime), MaxLifetime)
	}
	return minAutoLifetime
}

// SandboxConditionPaused is True while all of the sandbox's processes are known to be
// stopped, and False with ReasonResumed once they are known to run again. Absent for a
// sandbox that was never paused.
const SandboxConditionPaused = "Paused"

// The states of PauseStatus, which are the reasons of SandboxConditionPaused too.
const (
	ReasonFreezing  = "Freezing"
	ReasonFrozen    = "Frozen"
	ReasonNoFreezer = "NoFreezer"
	// ReasonSaving: the sandbox's files are being kept, or will be. ReasonHibernated: they
	// are kept, and its pod is given up. ReasonSaveFailed: keeping them has failed for a
	// minute, and is tried again.
	ReasonSaving     = "Saving"
	ReasonHibernated = "Hibernated"
	ReasonSaveFailed = "SaveFailed"
	// ReasonFreezeFailed: the freezer has refused so often that a sandbox whose timeout
	// paused it ends.
	ReasonFreezeFailed = "FreezeFailed"
	// ReasonUnanswered: for a minute it is not known whether the sandbox is stopped, as
	// its pod does not answer, or no gateway could ask it. It is tried again.
	ReasonUnanswered = "Unanswered"
	ReasonResuming   = "Resuming"
	ReasonResumed    = "Resumed"
)

// Freezable reports whether the pods of a spec can be frozen by their sandboxd: it stops
// what runs in its own container alone, and a liveness probe would end what it stopped.
// With a home of its own (--home) it runs among this machine's processes and has no
// freezer.
func Freezable(spec *corev1.PodSpec) bool {
	for i := range spec.InitContainers {
		if p := spec.InitContainers[i].RestartPolicy; p != nil && *p == corev1.ContainerRestartPolicyAlways {
			return false
		}
	}
	shared := spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace
	return len(spec.Containers) == 1 && RunsSandboxd(spec) && spec.Containers[0].LivenessProbe == nil &&
		!shared && !spec.HostPID &&
		!slices.ContainsFunc(ownArgs(&spec.Containers[0]), setsHome)
}

// ownArgs are sandboxd's arguments, without those of a start command.
func ownArgs(c *corev1.Container) []string {
	args := slices.Concat(c.Command, c.Args)
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return args
}

// setsHome reports whether an argument is sandboxd's option --home.
func setsHome(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	return name == "--home" || name == "-home"
}
