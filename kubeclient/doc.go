// Package kubeclient is how our processes reach an API server that may be away:
// a mapper that knows the kinds without asking, so that a process starts without
// one, a configuration whose watches come back within seconds of its return, and a
// guard that ends a process whose caches are ahead of a server that was restored.
//
// It decides nothing and keeps no state. Every process that makes a client calls it.
package kubeclient
