// Package pause pauses and resumes sandboxes for one gateway: it writes spec.paused and
// orders the pod's freezer to stop or continue the sandbox's processes. The REST API calls
// Pauser.Pause and Pauser.Resume; a request for a paused sandbox calls Wake; activation
// calls EnsureAwake before it routes to a sandbox that was ever paused; EnforcePause repeats an order
// for the controller.
//
// The freezer itself is sandboxd's. This package authorises no caller, and writes no status
// (reconcilers/sandbox does). docs/design/pause.md has the states; takeStep has the table of
// steps, of which each can be taken again, by any gateway, after any failure below.
//
// # Why no request reaches a frozen or a foreign sandbox
//
//   - The index answers Paused for spec.paused before it looks at the pod, and drops the
//     route; the Put of an earlier resolve is refused, as at an end.
//   - A sandbox with pauseMode is routed to only if its status says Resumed for its
//     pauseOrder, or if this gateway has had the freezer let it run with that number, or has
//     itself written it as restored. Each change of pauseOrder drops its route, so a pause and
//     a resume between two looks cannot pass unseen. Other changes of its spec do not matter.
//   - An order goes to the pod that backs the sandbox by a live read, under the gateway's
//     lease and the route cache's checks, within 2 s; another pod's sandboxd refuses the
//     signature.
//   - A request that a lagging watch lets through gets sandboxd's 502; on another port it
//     waits until the sandbox runs again, as those under way do, and resumes nothing.
//   - No gateway routes to a sandbox with spec.restore: each restores its files first, or
//     finds that this is done.
//
// # While files are kept or restored
//
//   - No timeout ends a sandbox that is Restoring: its resume is taken back, by one PATCH
//     (paused on, binding and endAt off), and its pod goes as after a hibernation. A request
//     that fails takes back only a resume without a pod, since a bound one may be another
//     request's.
//   - Until the files are restored endAt cannot be moved (409); the write that removes
//     restore moves it by the restore's time.
//   - A timeout that is to hibernate the sandbox (onTimeoutMode) ends it without a store, or
//     where the pool does not allow it.
//   - What resumes a sandbox that is Saving, a call or a request, takes part in keeping its
//     files and then restores them. If they cannot be kept, it resumes with its memory.
//   - An end during Saving comes first, and so does a resume that is written by hand: the write
//     of GiveUpPod is refused, and sandboxd breaks the archive off, or refuses it.
//   - A sandboxd that is asked to stop continues what it stopped, but kills it once files
//     were read for a hibernation (suspender.close).
//
// # When a step of a pause or a resume fails
//
//	the probe                                     nothing is written: 400 without a
//	                                              freezer, 409 before /init, 503 if it
//	                                              fails or has no answer in three tries of
//	                                              2 s
//	the PATCH's test                              read again; after five times 500
//	the PATCH's answer is lost                    500; if it was applied, the controller
//	                                              finishes it
//	the freeze, or it has no answer in three      the gateway removes spec.paused, with the
//	tries                                         time that was left as endAt, orders the
//	                                              unfreeze, and answers 500
//	that too, or the gateway dies between two     the controller finishes what the spec
//	steps                                         says
//	a snapshot begins between probe and freeze    the freeze is tried again for two
//	                                              seconds; then the pause is undone: 409
//	this gateway's watch shows its own write      the pod is read again
//	before the order
//	the unfreeze at a resume, also as the pod's   500; no gateway routes to it before the
//	init key is gone                              freezer has answered; it stays Resuming,
//	                                              and the controller asks again
//	the pod goes while it is paused, or its       the sandbox ends as Failed, PausedPodLost
//	files are saved
//	etcd is restored to an older state            orders with lower numbers are refused until
//	                                              it was paused and resumed often enough:
//	                                              kill such a sandbox
//
// # When a step of a hibernation fails
//
//	no store                                      nothing is written: 501
//	the pool does not allow it; no freezer; no    nothing is written: 400
//	digests of the pod's images
//	the files are too many; they cannot be kept   a pause that was asked for is undone, and
//	or read back                                  the sandbox runs: 507; 500
//	a ResourceQuota forbids the Checkpoint        as above: 429
//	the same, or no store, where the controller   it stays frozen, and is tried again;
//	has a gateway try                             SaveFailed after a minute
//	the freeze itself, likewise                   as without files to keep: with onTimeout
//	                                              Pause it ends once the freezer has
//	                                              refused for a minute (FreezeFailed)
//	the gateway dies while it saves, or the       the controller has another gateway do it,
//	answer to GiveUpPod's write is lost           and deletes what no sandbox names
//	the images' digests differ                    SaveMismatch, 400: a pod that is known to
//	                                              run others is not taken; one that turns
//	                                              out to is given up, and the resume taken
//	                                              back
//	the archive is gone                           no pod is taken: it hibernates on; 500
//	the archive is damaged, or the pod refuses    the resume is taken back, and the next
//	it                                            one gets another pod; 500. After the
//	                                              second this gateway takes no pod for it
//	                                              for a while (files/refusals.go)
//	the pod goes, or its container restarts,      the resume is taken back, or the next
//	meanwhile                                     request takes another pod
//	the gateway dies while it restores            the next request goes on, at any gateway;
//	                                              after five minutes the resume is taken
//	                                              back
//	the pool is deleted                           its sandboxes hibernate on until a pool
//	                                              of that name is there
package pause
