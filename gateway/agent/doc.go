// Package agent speaks to sandboxd, the agent inside a sandbox, as its control
// plane: Agent makes the calls, Readiness says for which claims a pod's sandboxd
// has been initialised and does it where it has not. activation and the gateway's
// resolver ask Readiness, package sandboxes the Agent. Pods reads the pod that a call may
// go to, for those that call without a route: packages pause and snapshots.
//
// sandboxd answers no request before it has its token. The REST API's create gives it
// one with the environment; for all other sandboxes the first gateway that meets
// the pod does (see Readiness). Which pods run sandboxd their containers' ports
// say, 49983.
package agent
