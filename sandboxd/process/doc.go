// Package process serves the process service of E2B's envd protocol: the Service that New
// makes starts commands and terminals in the sandbox, streams their output to the clients
// that are attached, and takes input and signals for them. A process belongs to the
// sandbox, not to the request that started it: it goes on when the client leaves, and its
// end is kept for a while for clients that attach again.
//
// The package does not check tokens (package access does, before it is called) and isolates
// nothing (the sandbox around it does). Package sandboxd routes the requests to it; package
// sudo starts its commands with Launch.
package process
