// Package files keeps files of sandboxes and restores them, for one gateway: it makes
// the Checkpoint object, has the pod's sandboxd read the files (package sandboxdclient), and puts
// them into the checkpoint store. Snapshots is the backend of the REST API's snapshots; a
// Restorer restores one into the pod of a sandbox that the REST API creates. Hibernator does
// both for sandboxes that hibernate.
//
// This package deletes no data: the controller does (reconcilers/checkpoints), also the data
// of Checkpoints which a gateway left unfinished. docs/design/checkpoints.md has the states
// of a Checkpoint.
//
// # The place of an archive
//
//	waiting  none: it gets one when one is left, or after 10 s it is given up and nothing
//	         was written
//	read     taken, from before the pod is asked; until the end, an error, or less than 256
//	         KiB in 30 s of waiting for the pod
//	written  taken, until the store has it
//	over     left by the call, whatever became of the archive
//
// A pause that finds its sandbox being read, or no place, tries again within its time.
//
// # When a step fails
//
// After a failed snapshot the sandbox goes on, and its object is deleted.
//
//	there is no store                             501
//	the sandbox is paused, starts, or is about    409, nothing is written
//	to end
//	its node tells no digest of its image; its    400
//	pod has no sandboxd that can freeze it
//	sandboxd could not restore all files: it may  400, or 500 once it has sent something
//	not read one, give one away, set its
//	set-group-ID bit, or make a hard link in its
//	folder (runAsUser, dropped capabilities), or
//	a folder that sandboxd uses was replaced
//	more names than a restore takes (64 MiB); a   the archive is not kept: 500
//	lease on a file; a file becomes shorter;
//	sandboxd or its connection fails
//	the gateway reads the sandbox's files         409, nothing is written; a pause tries
//	already                                       again
//	all places of the gateway, or of the          503, nothing is written; a pause tries
//	namespace, are taken for 10 s                 again
//	the archive comes too slowly                  503, it is not kept; a pause as when its
//	                                              files cannot be kept
//	the gateway's limits or a ResourceQuota are   429, nothing is written
//	reached
//	the store has no room, or the files are more  507
//	than --max-checkpoint-bytes
//	the gateway dies, or takes longer than three  the controller writes Failed, after which
//	minutes                                       Succeeded is refused
//	a process cannot be continued at the end      sandboxd serves requests, and tries it
//	                                              again each second
//	a pause is asked for meanwhile                409; a timeout's is tried again
//	the store's file system hangs                 a call is given up after 10 s (a list
//	                                              after a minute, a put with its request),
//	                                              and may be carried out later; no pod is
//	                                              blamed. An archive that is open already
//	                                              is waited for
//	a restore's answer is lost                    the part is sent again, and taken once
//	a restore fails                               the create fails, and its sandbox ends
//	the pod goes during a restore                 the next pod gets the archive from its
//	                                              beginning
package files
