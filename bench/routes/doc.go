// Package routes measures the route cache: hits of all and of a thousand, miss, put
// and evict by 1, 2 and 8 goroutines, with a thousand to a million routes, beside
// golang-lru and beside a map under a mutex; and what an entry costs in memory.
// bench runs it.
//
// The other two have no fences, tokens or addresses, and the map evicts nothing (its "evict"
// deletes a random entry, so that it keeps its size): they are floors and no alternatives. A
// hit of the route cache is all that a request does there: enter a flight, get, leave.
package routes
