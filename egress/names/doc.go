// Package names decides by a host's name whether a sandbox may connect to it, and which
// headers its requests get on the way. Make a [Policy] from what the REST API was given,
// with [NewPolicy], which refuses what no policy can say; ask it with Decide, and about the
// address that is dialled with Dialled. A header's value may name secrets, as E2B's SDKs
// write them: [ParseTemplate] reads it, and Fill puts them in.
//
// It resolves no name, holds no secret and opens no connection: the packages beside it do.
// All of it is immutable, so safe for concurrent use.
package names
