// Package credentials holds what proves who is asking: API keys, kept as salted
// hashes in Secrets, and the tokens of sandboxes, derived from one seed. A [Store] makes
// and revokes keys. A [Verifier], once started, tells the owner of a key from memory.
// [LoadTokens] reads the seed, and the [Tokens] make and check the tokens of any sandbox;
// an [InitSigner] signs calls of a sandboxd's /init. A gateway has both before the API server
// answers, and loads them when it joins.
//
// It is not about what a caller may do: extproc and the REST API compare the
// routing.KeyOwner with a sandbox's namespace. `sandlane apikey` calls Store; each
// gateway runs one Verifier and holds one Tokens.
//
// A key is "e2b_" and 40 hex digits. The first 8 are the key's ID: they name its
// Secret, so that finding a key is one map lookup, and they are no secret; the
// other 32 are 128 random bits, which need no slow hash.
//
// A key belongs to one namespace, by UID: its Secret has the namespace as its owner, and
// the Verifier refuses it once there is no namespace of that name and UID. Kubernetes'
// garbage collector deletes the Secret later.
//
// Concurrency: the Verifier's records are each written by one watch goroutine and
// read by every request, under a read-write lock. While the API server is away
// the records stay as they are: keys go on working, and a revocation counts when
// the watch shows it, within milliseconds when all is well.
//
// Neither a key nor a token nor the seed is ever logged or part of an error.
package credentials
