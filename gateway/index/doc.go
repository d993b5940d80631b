// Package index is what this gateway knows of pods, sandboxes, pools and their
// templates from its own watches, and the live reads for what it does not know. Make an
// [Index] with New, start it, and wait with WaitSynced until all is listed; Resolve then
// says at once where a sandbox lives, and the [Hooks] are called for what changes. For a
// sandbox that it does not know ask a [Live], which reads the API server.
//
// Of pods and sandboxes it keeps compact records, since there are many of them; of pools,
// envs and templates it keeps the specs. It writes nothing. It is extproc's Pools, and says to
// package activation which pools a claim may use; package gateway corrects what it says of
// sandboxes by the gateway's own writes. Its Hooks feed the route cache, the schedulers, the
// activator and the registry of use.
package index
