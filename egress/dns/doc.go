// Package dns answers the questions of sandboxes for names. [Answer] reads one message and
// returns its answer, by what a function says of the name; [Packets] and [Stream] do so for
// what comes by UDP and by a TCP connection.
//
// It is no resolver: it has addresses of names from its caller, package egress/proxy, and
// passes no question on.
package dns
