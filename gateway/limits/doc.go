// Package limits bounds what one namespace takes from the others at one gateway: places to
// wait for a pod, open requests, snapshots and the places to write them. Reader has the numbers,
// Waiting, OpenRequests and Archives count.
// Package gateway makes both; extproc, the REST API and the poll of Envoy ask them.
//
// # Shares
//
// A share is no fixed number: a namespace may have factor times as many as are free. So one
// that is alone gets factor/(factor+1) of the room, each of n greedy ones
// factor/(1+n*factor), and some of the room always stays free for a namespace that has few.
// A thirty-second of the room is open to each, since the count of all may be too high for a while.
//
// # What is not counted
//
// Envoy does not tell whose the requests are that wait for a connection. A namespace has as many
// of them as it has connections without a request, and no more than there are in all: so those
// that are idle count for it while others wait.
//
// A look at Envoy counts what was admitted and not yet begun there as open, in all but not for
// its namespace, which so gets a few more than its share. What Envoy answers by itself is seen
// 10 ms and a look later.
package limits
