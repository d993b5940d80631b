#!/usr/bin/env bash
# Puts the custom resource definitions of other operators, whose kinds the chart can
# make, into the user's cache, and prints their folder as EXTRA_CRDS=… on standard
# output. They come from the Go modules beside this file: Gateway API and cert-manager
# ship them, those of Prometheus' operator are made from its types. test/helm has an
# API server judge what the chart renders by them. $CONTROLLER_GEN is set by make.
set -euo pipefail
cd "$(dirname "$0")"

key=$(cat go.mod go.sum build.sh | sha256sum | cut -c1-12)
dir=${XDG_CACHE_HOME:-$HOME/.cache}/sandlane/crds/$key
if [[ ! -d $dir ]]; then
	export GOFLAGS=-mod=readonly GOWORK=off
	folder() { go list -m -f '{{.Dir}}' "$1"; }
	go mod download sigs.k8s.io/gateway-api github.com/cert-manager/cert-manager
	new=$dir.$$
	mkdir -p "$new"
	trap 'rm -rf "$new"' EXIT
	"${CONTROLLER_GEN:?it is set by make: run make helm-test}" crd \
		paths=github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1 output:crd:dir="$new" >&2
	install -m 644 "$(folder sigs.k8s.io/gateway-api)"/config/crd/standard/gateway.networking.k8s.io_httproutes.yaml \
		"$(folder github.com/cert-manager/cert-manager)"/deploy/crds/cert-manager.io_{certificates,issuers}.yaml "$new"
	find "$new" -type f ! -name '*_podmonitors.yaml' ! -name '*_servicemonitors.yaml' ! -name '*_prometheusrules.yaml' \
		! -name '*_httproutes.yaml' ! -name '*_certificates.yaml' ! -name '*_issuers.yaml' -delete
	mv "$new" "$dir"
fi
echo "EXTRA_CRDS=$dir"
