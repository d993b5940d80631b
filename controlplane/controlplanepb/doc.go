// Package controlplanepb is the generated form of
// controlplane/proto/sandlane/controlplane/v1: messages, client and server of
// the gRPC service of a gateway.
//
// It holds no code of its own; package controlplane is its only user.
// hack/proto/generate.sh regenerates it.
package controlplanepb
