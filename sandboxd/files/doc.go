// Package files moves the contents of files in and out of the sandbox over HTTP:
// GET and POST /files and POST /files/compose of E2B's envd protocol. Contents
// are streamed; a file of any size takes the same memory.
//
// It does not check tokens or signatures (package access does, before) and does
// not list or move files (package filesystem does).
//
// Package sandboxd mounts it.
package files
