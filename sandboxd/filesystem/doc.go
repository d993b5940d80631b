// Package filesystem serves the filesystem service of E2B's envd protocol: it
// describes, lists, makes, moves, removes and watches files of the sandbox.
//
// It does not move contents (package files does) and does not restrict users: it
// acts as sandboxd itself, resolves paths for the user of the request and gives
// that user what it makes.
//
// Package sandboxd mounts it; package files describes entries with Describe's
// rules and reports its writes to it.
package filesystem
