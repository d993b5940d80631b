#!/bin/sh
# Regenerates sandboxd/processpb and sandboxd/filesystempb from sandboxd/proto.
# The compiler and both plugins are pinned in hack/sandboxd-proto/go.mod; a
# second run changes nothing.
set -eu
cd "$(dirname "$0")/../.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(
	cd hack/sandboxd-proto
	go build -o "$bin/" . google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go
)
rm -f sandboxd/processpb/*.pb.go sandboxd/processpb/*.connect.go sandboxd/filesystempb/*.pb.go sandboxd/filesystempb/*.connect.go
for file in process/process.proto filesystem/filesystem.proto; do
	"$bin/sandboxd-proto" -I sandboxd/proto -out . -opt module=github.com/sandlane/sandlane \
		-plugin "$bin/protoc-gen-go" "$file"
	"$bin/sandboxd-proto" -I sandboxd/proto -out . -opt module=github.com/sandlane/sandlane,package_suffix= \
		-plugin "$bin/protoc-gen-connect-go" "$file"
done
