// Package registry is the template registry of `sandlane up`: a server of the OCI distribution
// API over a folder. Open returns a Registry for a folder and a token; Handler serves it, on
// loopback, where pods with networks of their own do not come.
//
// It is as much of the API as package gateway/builds and the local node need: blobs in one or
// many parts, manifests by tag or digest, and no lists, mounts, and deletions by clients. Uploads are
// streamed to the disk. A blob or manifest is complete or not there at all, and is read only in
// the repository that it was pushed to: knowing a digest gives nothing.
//
// Collect removes what nobody has used for a while.
//
// # On the disk
//
// The time of an entry of a repository is that of its last use.
//
//	blobs/sha256/HEX               blobs and manifests, by their digest
//	repositories/NAME/_blobs/HEX       empty: the repository has the blob
//	repositories/NAME/_manifests/HEX   the media type of the manifest
//	repositories/NAME/_tags/TAG        the digest
//	uploads/ID                     a blob on its way; removed by Open
//
// Package local starts it. The library distribution is not used: its handlers bring 188 packages
// (exporters of traces, a Redis client) for what is used here.
package registry
