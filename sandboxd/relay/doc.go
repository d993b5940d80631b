// Package relay makes servers reachable that listen on loopback alone, as many
// development servers do unless told otherwise: for each of their ports it listens on
// the sandbox's own addresses and passes connections on. The kernel moves the data
// (splice), so a relayed byte is never copied into this process.
//
// It does not decide which clients may connect: the gateway before it does, as for any
// port of a sandbox. It relays 127.0.0.1 and ::1 alone, no port that something listens
// on by all addresses or by the sandbox's own, and not sandboxd's.
//
// A port is relayed from the first scan that finds its server until the first that
// does not, or until a connection finds that nothing listens any more. Only Run's
// goroutine opens and closes listeners. While a port is relayed no other program can
// listen on it by all addresses; a program that tries at the moment at which its
// predecessor on loopback ends must try again, which is why scans are closer
// together while something is relayed. Established connections outlive the relay of
// their port: their ends are the server's and the client's.
//
// A scan that cannot be read changes nothing and is tried again. A port that cannot be
// listened on is left alone and tried again at each scan.
//
// Package sandboxd runs it.
package relay
