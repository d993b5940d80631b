// Package routes measures the route cache: hits of all its routes and of a thousand of them,
// beside golang-lru and beside a map under a mutex; and what an entry costs in memory.
// bench runs it.
//
// The other two have no fences, tokens or addresses, and the map evicts nothing: they are
// floors and no alternatives. A hit of the route cache is all that a request does there:
// enter a flight, get, leave. The benchmarks of package routecache also measure misses, puts
// and goroutines at once.
package routes
