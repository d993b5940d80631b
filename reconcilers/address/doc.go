// Package address decides when a pod's address may serve a new claim: only after every
// gateway knows that the address's last claim has ended. Ask Rule.Check before a pod turns
// idle; tell the Ledger of claims and fences.
//
// The rule has three sources, asked in this order:
//
//  1. the pods of ours, from the cache: no other one shows the address, be it
//     as pod IP or as the address it turned idle with;
//  2. the Ledger: what this process knows of claims and fences, at once, not
//     when a cache shows it;
//  3. the Sandboxes on record, from the cache: none had it without being fenced
//     for less than the cooldown.
//
// The order matters. A claimed pod leaves the API only after its address stands
// in the status of its Sandbox, and the writer of that tells the ledger first. So
// a reader that finds the pod gone and asks the ledger afterwards finds its entry;
// the other way round both could be missed.
//
// A claim's entry in the ledger has two states: held (from when the claimed pod was first
// seen) and fenced (all gateways have acknowledged). It never goes back. Only Load and
// reconcilers/sandbox change it: to held before the address is written to a status; to
// fenced after fencedAt is written or, for a former claim and one that no Sandbox owns,
// after all gateways have acknowledged. If the write of fencedAt fails the entry stays
// held, which errs on the safe side, and the write is tried again.
//
// A new leader knows nothing until Load has read pods and Sandboxes with a
// consistent list; until then no address is free. Nothing here is durable: it
// can all be rebuilt from the API.
//
// This package writes nothing to the API. Its callers are reconcilers/sandbox
// (entries) and reconcilers/sandboxpool (the question).
package address
