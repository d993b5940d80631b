// Package access decides which requests to sandboxd are allowed. A State, made with New,
// has what /init set (token, environment, default user and directory). It checks tokens,
// and the signatures of file URLs, of /init and of a gateway's orders; it answers CORS, and
// finds the user of a request.
//
// The package serves no files and starts no processes, and it is no boundary between the
// users of one sandbox: a client with the token may act as any of them.
//
// Package sandboxd wraps its handlers in State.Guard; packages process, filesystem and
// files ask the State for users through interfaces of their own.
package access
