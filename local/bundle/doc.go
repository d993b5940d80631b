// Package bundle brings the programs that `sandlane up` needs besides its own in one signed
// file, so that a machine without Go, a compiler or Python starts a cluster in seconds.
//
// A bundle is a tar file, compressed by gzip:
//
//	manifest.json           version, platform, and the path, size and SHA-256 of each file
//	manifest.json.minisig   its signature, in minisign's format
//	the files               in the order of the manifest
//
// The paths are those of Sandlane's cache folder, where `up`, `kubectl` and `prepare` look for
// these programs anyway: a bundle fills the cache, and nothing else knows of it. [Write] makes
// one of a cache, [Fill] takes one.
//
// # What is checked, and when
//
// The signature before the manifest is read, version and platform before a file is, and the
// digest of each file before it gets the name by which it is found. A file appears by a
// rename. A bundle that is refused, or a process that is killed, leaves only files that were
// checked.
package bundle
