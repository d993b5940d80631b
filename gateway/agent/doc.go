// Package agent speaks to sandboxd, the agent inside a sandbox, as its control
// plane: Agent makes the calls, Readiness says for which claims a pod's sandboxd
// has been initialised and does it where it has not. Package activation and the gateway's
// resolver use Readiness, package sandboxes uses Agent. Pods reads the pod that a call may
// go to, for packages that call without a route: pause and snapshots.
//
// sandboxd answers no request before it has its token. The REST API's create sends the
// token with the environment; for all other sandboxes the first gateway that has a request
// does (see Readiness). A pod runs sandboxd if a container has the port 49983.
package agent
