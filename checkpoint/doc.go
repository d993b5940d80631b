// Package checkpoint keeps the data of checkpoints: one archive each, by the UID of its
// Checkpoint object, written once and read whole.
//
// It does not know what an archive has in it (sandboxd/archive does), nor which
// checkpoints there should be: the Checkpoint objects say that, and the controller deletes
// what no object names.
//
// Gateways put and get archives, the controller lists and deletes them. Folder keeps
// them in a folder, which all of them share.
//
// # States of an archive in a folder
//
//	absent ─Put─▶ partial: .partial-<random>, growing ─synced, renamed─▶ whole: <id>
//	                        └─Put fails, or its process is killed─▶ left, until a Sweep
//
// An archive has its name only once all of it is on the disk: a name that is there is a
// whole archive, whenever the process or the machine stops. Its last bytes are its
// SHA-256, so that what the disk has lost or changed since is an error when it is read,
// and never taken for the data.
package checkpoint
