// Package network gives the local node's pods their networks: addresses of a subnet of the machine's
// own, and for isolated pods a network namespace on one bridge, closed towards the machine, the other
// pods and the internet. Nodes without isolation use Loopback.
//
// PickSubnet reserves the subnet, Guard makes it unreachable wherever no pod is, Addresses hands out
// what is in it, and Bridge.Open makes a pod's network. RemoveLinks and Unguard take away what a node
// that was killed left. The package starts no process and knows no Kubernetes object; package node
// calls it.
package network
