// Package sandboxdclient calls sandboxd, the agent inside a sandbox, on behalf of a gateway. Agent
// makes the calls. Readiness remembers for which claims this gateway has initialised the
// pod's sandboxd, and initialises it for the others; package activation and the gateway's
// resolver use it. Pods reads the pod that may be called, for the packages that call a pod
// without a route: pause and snapshots.
//
// sandboxd answers no request before it has its token. The REST API's create sends the
// token with the environment; for every other sandbox the first gateway that has a request
// for it sends the token (see Readiness). A pod runs sandboxd if one of its containers has
// the port 49983.
package sandboxdclient
