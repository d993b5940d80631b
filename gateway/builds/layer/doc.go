// Package layer turns the archive that sandboxd makes of a sandbox's changed files into a
// layer of an OCI image:
//
//	err := layer.Convert(w, archive, base)
//
// It is a stream in and a stream out; in memory it has the names of changed folders alone, of
// which there may be half a million. It knows no registry. Package gateway/builds calls it.
//
// # What is left out
//
// The archive has no file systems that are mounted in the builder, and no sockets and devices.
// A name of the base is therefore missing in its folder either because a step has removed it,
// or because something is mounted there: own lists what is, and it is neither written nor
// removed.
package layer
