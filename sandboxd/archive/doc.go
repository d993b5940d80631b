// Package archive keeps and restores the files of a sandbox: Write makes one stream of
// what was changed since its container started, Extract does the same to the fresh
// container of another pod of the same image.
//
// It does not stop what runs in the sandbox meanwhile, nor decide whether either is
// allowed (package sandboxd does both), and keeps no archives.
//
// # What is kept
//
// The container's own layer: the tree below each Mount, without what else is mounted
// there. Of the layer, all whose ctime is not before the container's start: no process
// can set that back. Of a folder that changed, all names as well, so that what was
// deleted is missing after the restore. A folder that changed inside of one that changed
// may have been moved there with older files in it, and is kept whole; an emptyDir too.
// Kept are regular files, folders, symbolic and hard links and FIFOs, with owner, mode,
// time of change, and the attributes user.*, capabilities and ACLs. Sockets and device
// files are not: their other end is a process, or the machine.
//
// # Form
//
// A tar stream (PAX), paths without the first slash. After a folder that changed comes an
// entry with its path and the record SANDLANE.names, whose content is the folder's names,
// each with a zero byte behind it.
//
// # The root is not left
//
// An archive is written by a sandboxd, next to which anything may have run as root: it is
// not trusted. Every path is taken apart and opened from the descriptor of its mount
// without symbolic links, "..", and other mounts (openat2); the last element is made or
// removed, never followed. So an archive changes the layer and the emptyDirs of the
// container, which the sandbox may change itself, and nothing else.
package archive
