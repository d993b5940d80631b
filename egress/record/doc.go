// Package record writes what became of each connection of a sandbox's as a line of JSON: make
// a [Writer], give its Add to what serves connections, and call Start. [Of] finds one
// sandbox's lines again in the log of an egress process.
//
// A [Record] has names and sizes, and no byte of what passed: no header, no path, no value.
package record
