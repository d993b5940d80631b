// Package relay makes servers reachable that listen only on loopback, as many development
// servers do by default: for each of their ports a Relay listens on the sandbox's own
// addresses and passes connections on to the server. The kernel moves the data (splice), so
// that a relayed byte is never copied into this process. Package sandboxd sets the fields of
// a Relay and calls Run.
//
// The package does not decide which clients may connect: the gateway does, as for any port
// of a sandbox. Sandboxd runs none where its network is the machine's. It relays only servers on 127.0.0.1 and ::1, no port on which a program
// listens on all addresses or on the sandbox's own, and not sandboxd's port.
//
// A port is relayed from the first scan that finds its server until the first scan that does
// not, or until a connection finds no server. Only Run's goroutine opens and closes
// listeners. While a port is relayed, no other program can listen on it on all addresses; a
// program that tries this just when its predecessor on loopback has ended must try again,
// which is why scans are more frequent while a port is relayed. Established connections go on
// after the relay of their port has ended, until the server or the client closes them.
//
// After a scan that fails nothing changes until the next one. If the relay cannot listen on a
// port, it tries again at each scan.
package relay
