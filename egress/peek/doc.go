// Package peek reads from a client's first bytes which host it wants: [Hello] from a TLS
// ClientHello, [ReadHead] from the head of an HTTP/1 request. A [Gate] reads an HTTP/1
// connection to its end and stops where a request could be read in two ways, so that
// what is behind it may parse with less care.
//
// It is no HTTP server and decides nothing about hosts. Package egress/proxy calls it.
package peek
