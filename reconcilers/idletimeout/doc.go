// Package idletimeout releases sandboxes that are not used, and those that do not
// start. Make an [IdleTimeoutReconciler] with what reports the last uses, and add it to the
// manager with its SetupWithManager: it then looks at all sandboxes each interval.
//
// It does not judge what use is: gateways do, and report the age of each claim's last use
// through LastActiveSource. It releases nothing itself: it writes spec.end, and
// reconcilers/sandbox carries it out. Absolute ends (endAt) are not its
// business. The controller (leader) runs one.
//
// What one check does stands with releaseIdle (reconciler.go), what happens when one of
// its steps fails with release (release.go), and what a startup counts from with
// CheckAndReleasePendingSandboxes.
package idletimeout
