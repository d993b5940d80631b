package explain

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/console/processes"
)

// Facts is what was read about one sandbox. Objects that are nil were not found, unless
// Unread says that they could not be read.
type Facts struct {
	ID      string
	Sandbox *v1alpha1.Sandbox
	Pool    *v1alpha1.SandboxPool
	Pod     *corev1.Pod
	// Checkpoint has the files of a sandbox that hibernates.
	Checkpoint *v1alpha1.Checkpoint
	// Waiting are the pools for whose pods requests wait. They are read where the sandbox is
	// not there: a first request that waits has made no record yet.
	Waiting []v1alpha1.SandboxPool
	// Events are those of the sandbox, of its pod and of its pool.
	Events []corev1.Event
	// Logged are the lines of gateways and controllers that name the sandbox, the process's
	// name before each.
	Logged []string
	// Installation has the gateways.
	Installation Installation
	// Unread says what could not be read, and why.
	Unread []string
	Now    time.Time
}

// Installation is what was read about all that sandboxes have in common.
type Installation struct {
	Pools       []v1alpha1.SandboxPool
	Envs        []v1alpha1.SandboxEnv
	Checkpoints []v1alpha1.Checkpoint
	// Sandboxes are looked at for pauses with trouble and ends that are not fenced.
	Sandboxes []*v1alpha1.Sandbox
	Leases    []coordinationv1.Lease
	// Gateways is what gateways say of themselves, by name. One that did not answer is
	// there with its Err.
	Gateways map[string]processes.Metrics
	// Unread says which kinds could not be read, and why.
	Unread []string
	// Undefined: the cluster does not know Sandlane's kinds.
	Undefined bool
	Now       time.Time
}

// Level says how bad a finding is.
type Level string

// The levels.
const (
	// Bad hurts users now.
	Bad Level = "bad"
	// Warn will, or may.
	Warn Level = "warn"
	// Note is neither.
	Note Level = "note"
)

// Finding is something that is not as it should be.
type Finding struct {
	Level Level `json:"level"`
	// About names the object, such as "pool default/echo".
	About string `json:"about"`
	// Text says what is so, in one sentence.
	Text string `json:"text"`
	// Do says what to do about it; empty if there is nothing to do.
	Do string `json:"do,omitempty"`
}
