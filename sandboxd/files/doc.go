// Package files downloads, uploads and joins files of the sandbox over HTTP: the Service
// that New makes serves GET and POST /files and POST /files/compose of E2B's envd protocol.
// Contents are streamed; a file of any size takes the same memory.
//
// The package does not check tokens or signatures (package access does, before it is called)
// and does not list or move files (package filesystem does). Package sandboxd routes the
// requests to it.
package files
