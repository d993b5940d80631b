// Package authority keeps the certificate authority of `sandlane up --tls`: a
// folder with its certificate (ca.crt, for clients to trust) and its key (ca.key,
// for the owner alone).
//
// It can vouch for one domain, the names below it, localhost and loopback
// addresses, and for nothing else: its certificate says so (name constraints).
// A program that trusts it does therefore not trust a thief of the key with other
// names. It lives for five years, a certificate that it signs for 397 days, and it
// is replaced when it has less than those left. It is no authority for anything
// but a gateway on this machine. local is its only caller, and holds the lock of
// the state folder meanwhile.
//
// # States of the folder
//
// Ensure looks at the folder and does the first that applies:
//
//   - not there: makes the authority.
//   - anything in it but both files, a key that others can read, or what is no
//     authority of this package for this domain: *ForeignError. Nothing is changed.
//   - ours, but not valid for as long as a certificate lives: a new one takes its
//     place.
//   - ours and valid: is used as it is.
//
// # What happens when a step fails
//
// A new authority is written to a folder beside (.new-<name>), which then gets
// the name; one that it replaces is moved out of the way before (.old-<name>). A
// crash leaves the folder as it was, or none at all; the next Ensure begins from
// there, and removes what lies beside.
package authority
