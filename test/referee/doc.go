// Package referee asks whether the referee (package conformance) finds what a wrong backend
// does. Between it and a real stack's gateway stands a proxy that changes one kind of request
// or answer: a fault. Each fault was written without a look at the cases, from what users of
// E2B's SDKs rely on, and says which features it can touch.
package referee
