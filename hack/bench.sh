#!/usr/bin/env bash
# Runs the benchmarks: `hack/bench.sh all`, `hack/bench.sh quick --only dataplane`.
# It finds or builds Envoy, etcd and kube-apiserver first.
set -euo pipefail
cd "$(dirname "$0")/.."

prepared=$(bin/sandlane prepare)
while IFS='=' read -r name value; do
	case "$name" in
	KUBEBUILDER_ASSETS | ENVOY_BIN) export "$name=$value" ;;
	esac
done <<<"$prepared"
exec bin/sandlane-bench "$@"
