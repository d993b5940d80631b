// Package check asks an installation what its users will ask of it: each gateway
// answers, refuses what has no API key, and reaches the same sandbox as the others.
// It makes sandboxes of its own, and ends them. `sandlane check` calls it, and with
// that `helm test`. It is no benchmark and no monitor: it looks once, and says in one
// line for each step what it saw.
//
// A step begins only when the one before has passed. Sandboxes that a failed step
// leaves are ended all the same; those of a check that was killed end when their
// minutes are over, by their timeout or their pool's idle timeout.
package check
