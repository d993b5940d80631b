// Package files downloads, uploads and joins files of the sandbox over HTTP: the Service
// that New makes serves GET and POST /files and POST /files/compose of E2B's envd protocol.
// Contents are streamed; a file of any size takes the same memory.
//
// An upload empties the file that is there and writes the body into it, once nothing can be
// refused any more, and a file that the request made is removed if it fails. By a temporary file
// and a rename watchers would see a new file, hard links would keep the old content, and an
// overwrite would take twice the space. compose refuses a destination that is a source.
//
// The package does not check tokens or signatures (package access does, before it is called)
// and does not list or move files (package filesystem does). Package sandboxd routes the
// requests to it.
package files
