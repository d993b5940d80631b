// Package sandboxd is the agent inside a sandbox: an HTTP/1.1 server that speaks
// E2B's envd protocol, so that unmodified E2B SDKs run commands and move files
// there. It wires the packages below it and holds the life of the process; they
// hold the behaviour.
//
// It is no part of the gateway, imports nothing of it and nothing of Kubernetes,
// and isolates nothing: a holder of the token owns the sandbox.
//
// cmd/sandboxd calls Run.
package sandboxd
