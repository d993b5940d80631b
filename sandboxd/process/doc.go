// Package process serves the process service of E2B's envd protocol: it starts
// commands and terminals in the sandbox, streams their output to the clients that are
// attached, and takes input and signals for them. A process belongs to the
// sandbox, not to the request that started it: it lives on when the client goes
// away, and its end is kept for a while for clients that attach again.
//
// It does not check tokens (package access does, before requests come here) and
// isolates nothing: the sandbox around it does.
//
// Package sandboxd mounts it.
package process
