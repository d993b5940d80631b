// Package archive saves and restores the files of a sandbox: Write writes one stream with
// the files that were changed since the sandbox's container started, Extract makes the same
// changes in the fresh container of another pod of the same image.
//
// The caller stops the processes of the sandbox meanwhile, decides whether either is allowed
// (package sandboxd does both), and stores the archive.
//
// # Which files are kept
//
// Kept is the container's own layer: the tree below each Mount that can be written, without
// other mounts in it. Of the layer, the files are kept whose ctime is not before the
// container's start, since no process can set the ctime back. Of a folder that changed, all
// names are kept too, so that deleted files are missing after the restore. A changed folder
// inside a changed folder may have been moved there with older files in it, so it is kept
// whole, unless it is the image's, on overlayfs that cannot move it (overlay.go); so is an
// emptyDir. Regular files, folders, symbolic
// and hard links and FIFOs are kept, with owner, mode, time of change, and the attributes
// user.*, capabilities and ACLs. Sockets and device files are not, because their other end is
// a process, or the machine.
//
// # Form
//
// A tar stream (PAX), paths without the first slash. After a folder that changed comes an
// entry with its path and the record SANDLANE.names, whose content is the folder's names,
// each with a zero byte behind it. The last entry has the record SANDLANE.end; an archive
// without it was cut off.
//
// # No archive changes other files
//
// An archive is not trusted, because any program may have run as root beside the sandboxd
// that wrote it. Extract opens every path from the descriptor of its mount, without symbolic
// links, "..", and other mounts (openat2); it makes or removes the last element, and never
// follows it. So an archive changes only the layer and the emptyDirs of the container, which
// the sandbox may change itself.
package archive
