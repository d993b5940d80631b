// Package sandboxenv keeps the member pools of SandboxEnvs: it makes the pools that
// an env names for this cluster, brings them back in line with it, drains those that
// it names no more, and writes the env's status. Set up a SandboxEnvReconciler with a
// manager; reconcilers.Setup does.
//
// It decides neither how many pods a pool has (the env's replicas say that, which
// package autoscaler writes) nor where a claim goes (gateways do).
//
// materialise.go has the states of a member's pool and what happens when a step fails,
// drain.go how a member goes, status.go what several clusters write.
package sandboxenv
