// Package controlplane is what gateways and controllers say to each other: the
// leases by which a gateway says that it may hold routes, and the gRPC service
// by which a controller fences addresses and learns what is in use. A gateway runs a
// [Server], which serves [Fencer] and [ActivitySource] to controllers, and a [Membership],
// which keeps its Lease and says by Held whether it may route. A controller runs a
// [Directory], which knows from leases and pods which gateways must be asked, and over it a
// [Client], whose Fence, Poll and PrepareRelease ask all of them. Both sides show
// certificates ([MutualTLS]), or talk by unix sockets.
//
// It is not the data plane: no request of a client passes here, no route is
// ever pushed. It decides nothing about sandboxes; reconcilers call it.
//
// The states, and what happens when a step fails, stand with the types: a gateway's own
// view of its lease with Membership, a controller's with Directory, how a fence is settled
// with Client.Fence, what outlasts a controller in docs/design/last-use.md, which peers may call with MutualTLS.
package controlplane
