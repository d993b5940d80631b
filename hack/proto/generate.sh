#!/bin/sh
# Regenerates controlplane/controlplanepb from controlplane/proto, and
# sandboxd/processpb and sandboxd/filesystempb from sandboxd/proto. The compiler
# and the plugins are pinned in hack/proto/go.mod; a second run changes nothing.
set -eu
cd "$(dirname "$0")/../.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(
	cd hack/proto
	go build -o "$bin/" . google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc \
		connectrpc.com/connect/cmd/protoc-gen-connect-go
)
rm -f controlplane/controlplanepb/*.pb.go
"$bin/proto" -I controlplane/proto -out . -opt module=github.com/sandlane/sandlane \
	-plugin "$bin/protoc-gen-go" -plugin "$bin/protoc-gen-go-grpc" \
	sandlane/controlplane/v1/controlplane.proto

rm -f sandboxd/processpb/*.pb.go sandboxd/processpb/*.connect.go sandboxd/filesystempb/*.pb.go sandboxd/filesystempb/*.connect.go
for file in process/process.proto filesystem/filesystem.proto; do
	"$bin/proto" -I sandboxd/proto -out . -opt module=github.com/sandlane/sandlane \
		-plugin "$bin/protoc-gen-go" "$file"
	"$bin/proto" -I sandboxd/proto -out . -opt module=github.com/sandlane/sandlane,package_suffix= \
		-plugin "$bin/protoc-gen-connect-go" "$file"
done
