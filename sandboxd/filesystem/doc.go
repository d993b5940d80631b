// Package filesystem serves the filesystem service of E2B's envd protocol: the Service that
// New makes describes, lists, makes, moves, removes and watches files of the sandbox.
//
// It does not transfer contents (package files does). Every operation, and every watch,
// runs with the rights of the request's user (users.User.Act), so that the permissions
// of files apply to it, also through symbolic links.
//
// Package sandboxd routes the requests to it; package files uses its functions for metadata.
package filesystem
