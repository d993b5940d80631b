#!/usr/bin/env bash
# Downloads the modules of sandlane and of Kubernetes, if they are not there, while others
# compile; make starts it beside a first build. It says nothing: who needs a module that
# cannot be had says so.
set -euo pipefail
cd "$(dirname "$0")/.."

go list -deps ./cmd/sandlane
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sandlane/kube
if ! compgen -G "$cache/*/kube-apiserver"; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	cp hack/kube/kube.mod "$work/go.mod"
	cp hack/kube/kube.sum "$work/go.sum"
	GOWORK=off go list -C "$work" -mod=readonly -deps go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-apiserver
fi
