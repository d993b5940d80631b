#!/usr/bin/env bash
# Tests the Helm charts on a real Kubernetes node inside namespaces of this machine
# (test/node, test/helm): it says first what the machine lacks, then builds or
# finds the node's programs, Envoy and the images, and prints how long each part
# took. Its arguments are the parts: "chart" installs, upgrades and uninstalls,
# "node" breaks pods and processes, rolls, rotates and times, "fastpath" has Envoy answer
# hits by itself, "egress" lets sandboxes reach hosts by name, "templates" builds templates
# of images by E2B's SDK, "upgrade" goes from the previous release to that of the last commit
# and back. It needs root. Nothing is left but what is in the user's cache and in bin/.
set -euo pipefail
cd "$(dirname "$0")/.."

# The commit of which the previous release is made, until there is a tag. A change that objects
# of that commit do not survive moves it.
previous=265c6616

missing=()
((EUID == 0)) || missing+=("root: the node makes namespaces, mounts and control groups")
for program in go git make ip nsenter curl python3; do
	command -v "$program" >/dev/null || missing+=("$program")
done
python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
	missing+=("python3 3.11 or newer with venv, for E2B's Python SDK")
if ((${#missing[@]} > 0)); then
	for one in "${missing[@]}"; do echo "helm-test: missing: $one" >&2; done
	exit 1
fi

step() {
	local name=$1 began=$SECONDS
	shift
	echo "== $name"
	"$@"
	echo "== $name took $((SECONDS - began)) s"
}

# variables runs a program that prints NAME=value lines and exports them.
variables() {
	local lines name value
	lines=$("$@")
	while IFS='=' read -r name value; do
		export "$name=$value"
	done <<<"$lines"
}

images() {
	go run -C hack/image . -root "$PWD" -version test -tag test -envoy "$ENVOY_BIN" -out "$SANDLANE_IMAGES" \
		-images sandlane-gateway,sandlane-controller,sandlane-base,sandlane-test-envoy,sandlane-test-base,sandlane-test-echo,sandlane-test-idle,sandlane-test-pause
}

# release makes that of a commit by the commit's own `make release`.
release() { # commit, version, folder
	if [[ -e "$3/SHA256SUMS.minisig" ]]; then
		echo "$3 is there"
		return
	fi
	local work=$PWD/bin/release-source
	rm -rf "$work" "$3" "$3.new"
	mkdir -p "$work" "$(dirname "$3")"
	git clone --quiet --shared . "$work/source"
	git -C "$work/source" checkout --quiet "$1"
	bin/sandlane bundle key "$work/key"
	make -C "$work/source" --no-print-directory release DIR="$3.new" KEY="$work/key" VERSION="$2"
	mv "$3.new" "$3"
	rm -rf "$work"
}

: "${PROMTOOL:?it is set by make: run make helm-test}" "${CONTROLLER_GEN:?it is set by make: run make helm-test}"
export SANDLANE_IMAGES=$PWD/bin/test-images SANDLANE_BIN=$PWD/bin/sandlane SANDLANE_REGISTRY=$PWD/bin/test-registry CGO_ENABLED=0
step "promtool and controller-gen" make --no-print-directory --silent "$PROMTOOL" "$CONTROLLER_GEN"
step "build" make --no-print-directory build
step "Kubernetes and Envoy" variables bin/sandlane prepare
step "node and Helm" variables hack/node/build.sh
step "definitions of other operators" variables hack/crds/build.sh
step "images" images
step "registry" go build -C hack/image -trimpath -o "$SANDLANE_REGISTRY" ./registry
for part in "${@:-chart}"; do
	case $part in
	chart)
		step "node" go test -count=1 -timeout 10m -v ./test/node
		step "chart" go test -count=1 -timeout 15m -v -run '^Test(Rules|TableOfPolicies|Rendered.*|Chart)$' ./test/helm
		;;
	node) step "broken pods, killed processes" go test -count=1 -timeout 30m -v -run '^TestNode$' ./test/helm ;;
	fastpath) step "hits answered inside Envoy" go test -count=1 -timeout 10m -v -run '^TestFastPath$' ./test/helm ;;
	egress) step "egress by name" go test -count=1 -timeout 10m -v -run '^TestEgress$' ./test/helm ;;
	templates) step "templates by the SDK" go test -count=1 -timeout 15m -v -run '^TestTemplates$' ./test/helm ;;
	upgrade)
		SANDLANE_PREVIOUS=${XDG_CACHE_HOME:-$HOME/.cache}/sandlane/releases/v0.0.0-g$previous
		SANDLANE_RELEASE=$PWD/bin/release/v0.0.1-g$(git rev-parse --short=8 HEAD)
		export SANDLANE_PREVIOUS SANDLANE_RELEASE SANDLANE_PUSH=$PWD/bin/test-push
		step "previous release" release "$previous" "$(basename "$SANDLANE_PREVIOUS")" "$SANDLANE_PREVIOUS"
		[[ -e "$SANDLANE_RELEASE" ]] || rm -rf bin/release
		step "release of the last commit" release HEAD "$(basename "$SANDLANE_RELEASE")" "$SANDLANE_RELEASE"
		step "push" go build -C hack/release -trimpath -o "$SANDLANE_PUSH" .
		step "upgrade and rollback" go test -count=1 -timeout 20m -v -run '^TestUpgrade$' ./test/helm
		;;
	*)
		echo "helm-test: there is no part $part: chart, node, fastpath, egress, templates, upgrade" >&2
		exit 2
		;;
	esac
done
echo "== helm-test took $SECONDS s"
