// Package sandboxd is the agent inside a sandbox: an HTTP/1.1 server that speaks
// E2B's envd protocol, so that unmodified E2B SDKs run commands and move files
// there. cmd/sandboxd calls Run, the whole program; New makes a Server, whose Serve runs
// one in another process. The packages below it implement the requests; this package
// connects them, and starts, freezes and ends the process.
//
// It imports nothing of the gateway and nothing of Kubernetes, and isolates nothing: a
// client with the token may do anything in the sandbox.
package sandboxd
