// Package dns answers the questions of sandboxes for names. [Answer] reads one message and
// returns its answer, by what a function says of the name; a [Server] does so at an
// address, by UDP and TCP.
//
// It is no resolver: it has addresses of names from its caller, and passes no question on.
package dns
