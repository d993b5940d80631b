package autoscaler

import (
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Snapshot is a scaling group of an env at one moment.
type Snapshot struct {
	Now time.Time
	// Enabled: the env's autoscaling is on. Off, Decide keeps the bookkeeping alone.
	Enabled bool
	// Known: every gateway has said within the last seconds what waits there. While it
	// is false nothing shrinks.
	Known  bool
	Policy Policy
	// Min and Max bound the sum of the members' replicas; Max below 0 is none.
	Min, Max int
	Members  []Member
}

// Policy is spec.autoscaling with its defaults filled in.
type Policy struct {
	Mode v1alpha1.ScaleUpMode
	// Cooldown, IdleThreshold (0: no proactive steps), QuietWindow (0: always in demand)
	// and SaturationCooldown are those of scaleUp.
	Cooldown, IdleThreshold, QuietWindow, SaturationCooldown time.Duration
	// IdleTimeout and Stabilization are those of scaleDown.
	IdleTimeout, Stabilization time.Duration
}

// Member is one pool of the group.
type Member struct {
	Name string
	// Replicas is what the env asks for now.
	Replicas int
	// Min and Max bound them; Max below 0 is none.
	Min, Max int
	// UpPriority and DownPriority: the lower number comes first, equal ones by name.
	UpPriority, DownPriority int
	// Claimed counts claimed pods, Waiting the sandboxes that wait for one, Idle the idle
	// pods, and LongIdle those of them that have been idle for longer than IdleTimeout.
	Claimed, Waiting, Idle, LongIdle int
	// LastCreate is when the pool was last asked for a sandbox; zero: never known.
	LastCreate time.Time
	// Short says why the pool's pods cannot all be had (no node has room, a quota or a
	// plugin refuses); empty if they can.
	Short string
	// State is the bookkeeping of before.
	State State
}

// State is status.autoScaling of a pool. Zero times are unset.
type State struct {
	IdleZeroSince, LastUp, LastAttempt, LastDown, SaturatedUntil time.Time
	Result                                                       v1alpha1.ScaleUpResult
	Message                                                      string
}

// Decision is what is to be written, member by member, in the order of the snapshot.
type Decision struct {
	Members []MemberDecision
}

// MemberDecision is what is to be written for a member.
type MemberDecision struct {
	Name string
	// Replicas is what the env is to ask for; equal to what it asks for now if nothing
	// changes.
	Replicas int
	// Reason says why they change; empty if they do not.
	Reason Reason
	State  State
}

// Reason is why replicas change; it is a label of a metric and of an Event.
type Reason string

// The reasons.
const (
	ReasonBounds    Reason = "Bounds"
	ReasonDemand    Reason = "Demand"
	ReasonProactive Reason = "Proactive"
	ReasonIdle      Reason = "Idle"
)
