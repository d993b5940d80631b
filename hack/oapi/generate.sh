#!/bin/sh
# Regenerates controlplane/e2b/api from controlplane/e2b/openapi.yaml. The
# generator is pinned in hack/oapi/go.mod; a second run changes nothing.
set -eu
cd "$(dirname "$0")/../.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(
	cd hack/oapi
	go build -o "$bin/" github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen
)
rm -f controlplane/e2b/api/*.gen.go
"$bin/oapi-codegen" -config hack/oapi/oapi-codegen.yaml -o controlplane/e2b/api/api.gen.go controlplane/e2b/openapi.yaml
