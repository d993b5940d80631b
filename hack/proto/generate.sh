#!/bin/sh
# Regenerates controlplane/controlplanepb from controlplane/proto. The compiler
# and both plugins are pinned in hack/proto/go.mod; a second run changes nothing.
set -eu
cd "$(dirname "$0")/../.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(
	cd hack/proto
	go build -o "$bin/" . google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
)
rm -f controlplane/controlplanepb/*.pb.go
"$bin/proto" -I controlplane/proto -out . -opt module=github.com/sandlane/sandlane \
	-plugin "$bin/protoc-gen-go" -plugin "$bin/protoc-gen-go-grpc" \
	sandlane/controlplane/v1/controlplane.proto
