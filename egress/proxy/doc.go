// Package proxy is the egress process's way of connections: the name server that leads
// sandboxes to it, and what their connections to ports 80 and 443 meet there. Make a
// [Server] with [New], tell its [claims.Table] of pods and fences, and call Start.
//
// A TLS connection to a host without a rule is passed on byte for byte. One with a rule
// ends here, with a certificate of an [Authority] for that one name, and each of its
// requests gets the rule's headers. Requests to port 80 are passed on as they are.
//
// It decides nothing about names, claims or addresses: packages egress/names, claims and
// upstream do. It knows no Kubernetes object; `sandlane egress` puts it together with what
// does. The way of a connection, and what each step does when it fails, stand in
// docs/design/egress.md.
package proxy
