// Package checkpoint stores the data of checkpoints: for each Checkpoint object one archive,
// under the object's UID, which is written once and read whole. OpenFolder opens a Store in a
// folder, which gateways and controller share: gateways put and get archives, the controller
// lists and deletes them.
//
// The package does not know the contents of an archive (sandboxd/archive does), nor which
// checkpoints there should be: the Checkpoint objects say that, and the controller deletes
// the data that no object names.
//
// # States of an archive in a folder
//
//	absent ─Put─▶ partial: .partial-<random>, growing ─synced, renamed─▶ whole: <id>
//	                        └─Put fails, or its process is killed─▶ left, until a Sweep
//
// An archive gets its name only once all of it is on the disk, so that a file with such a
// name is a whole archive, whenever the process or the machine stops. Behind the archive the
// file has the SHA-256 of each of its parts, and that of this list, the archive's digest, so
// that a read fails if the disk has lost or changed a part since.
//
// # Who compares what
//
// Get compares the list with the digest; its caller compares the digest with the one that it
// kept. Read compares each part with the list. A restore does not read so: it signs the
// list's digest of each part, and sandboxd, which has to compare the part with what was
// signed in any case, refuses one that is damaged. So each byte is hashed once.
package checkpoint
