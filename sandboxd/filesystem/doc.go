// Package filesystem serves the filesystem service of E2B's envd protocol: it
// describes, lists, makes, moves, removes and watches files of the sandbox.
//
// It does not move contents (package files does). Every operation, and every watch,
// runs with the rights of the request's user (users.User.Act), so that the permissions
// of files hold for it and links lead nowhere else.
//
// Package sandboxd mounts it; package files takes from it how metadata is stored.
package filesystem
