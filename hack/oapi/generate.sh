#!/bin/sh
# Regenerates gateway/restapi/api from gateway/restapi/openapi.yaml. The
# generator is pinned in hack/oapi/go.mod; a second run changes nothing.
set -eu
cd "$(dirname "$0")/../.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(
	cd hack/oapi
	go build -o "$bin/" github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen
)
rm -f gateway/restapi/api/*.gen.go
"$bin/oapi-codegen" -config hack/oapi/oapi-codegen.yaml -o gateway/restapi/api/api.gen.go gateway/restapi/openapi.yaml
