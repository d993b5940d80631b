// Package access decides who may ask sandboxd for what: it holds what /init set
// (token, environment, default user and directory), checks tokens, signatures and
// the secret of /init, answers CORS, and finds the user of a request.
//
// It serves no files and starts no processes, and it is no boundary between the
// users of one sandbox: a holder of the token may act as any of them.
//
// Package sandboxd wraps its handlers in it; packages process, filesystem and
// files ask it for users through interfaces of their own.
package access
