#!/usr/bin/env bash
# Looks for flaky tests: runs the packages whose tests start an API server or Envoy
# again and again, in random order, on processors that are kept busy.
#
#   hack/flaky.sh [-n rounds] [-l hogs] [-d folder] [package…]
#
# Each run leaves one line in runs.txt (round, package, ok or FAIL, seconds, seed) of
# a folder outside the checkout, one folder a version of the sources, and a failed one
# its output. Started again it goes on where it was stopped. At the end it prints
# what failed and how to run that again; a failure is its exit code.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=10 hogs=$(nproc) folder=''
limit=600 # seconds that one run may take
while getopts 'n:l:d:h' flag; do
	case "$flag" in
	n) rounds=$OPTARG ;;
	l) hogs=$OPTARG ;;
	d) folder=$OPTARG ;;
	*) sed -n '2,/^set/{s/^# \{0,1\}//p}' "$0" && exit ;;
	esac
done
shift $((OPTIND - 1))

if (($# > 0)); then
	mapfile -t packages < <(go list "$@")
else
	mapfile -t packages < <(go list -f '{{.Dir}} {{.ImportPath}}' ./... | grep -vE '/test/(e2e|e2b|chaos)$' |
		while read -r dir package; do
			if grep -qsE 'test/kubetest"|package kubetest|ENVOY_BIN' "$dir"/*_test.go; then echo "$package"; fi
		done)
fi

# Another version of the sources begins anew.
sources=$(git ls-files -z --cached --others --exclude-standard -- '*.go' go.mod go.sum | xargs -0 cat | sha256sum | cut -c1-12)
folder=${folder:-${XDG_STATE_HOME:-$HOME/.local/state}/sandlane/flaky/$sources}
mkdir -p "$folder/bin"
runs=$folder/runs.txt
touch "$runs"

if [[ -z "${KUBEBUILDER_ASSETS:-}" || -z "${ENVOY_BIN:-}" ]]; then
	make --no-print-directory build
	prepared=$(bin/sandlane prepare)
	while IFS='=' read -r name value; do
		case "$name" in
		KUBEBUILDER_ASSETS | ENVOY_BIN) export "$name=$value" ;;
		esac
	done <<<"$prepared"
fi

# busy starts the load of one run. It ends with the run, and by itself in any case.
load=() current=''
busy() {
	for ((i = 0; i < hogs; i++)); do
		timeout "$limit" nice -n 10 bash -c 'while :; do :; done' &
		load+=($!)
	done
}
quiet() {
	if ((${#load[@]} > 0)); then kill "${load[@]}" 2>/dev/null || true; fi
	load=()
}
trap 'quiet; if [[ -n "$current" ]]; then kill "$current" 2>/dev/null || true; fi' EXIT
trap 'exit 130' INT TERM

race=(-race)
compiler=$(go env CC)
if ! command -v "${compiler%% *}" >/dev/null; then race=(); fi

# run runs one package's tests once and adds its line.
run() {
	local round=$1 package=$2 verdict=ok seed=$((RANDOM * 32768 + RANDOM + 1))
	local name=${package#*/*/*/}
	local binary=$folder/bin/${name//\//.}.test log=$folder/${name//\//.}.$round.log began=$SECONDS
	if [[ ! -x "$binary" ]]; then
		CGO_ENABLED=${#race[@]} go test ${race[@]+"${race[@]}"} -c -o "$binary" "$package"
		began=$SECONDS
	fi
	busy
	(cd "$(go list -f '{{.Dir}}' "$package")" && SANDLANE_SEED=$seed exec nice -n 10 timeout -k 30 $((limit + 60)) \
		"$binary" -test.v -test.shuffle "$seed" -test.timeout "${limit}s") >"$log" 2>&1 &
	current=$!
	wait "$current" || verdict=FAIL
	current=''
	quiet
	[[ $verdict == FAIL ]] || rm "$log"
	echo "$round $package $verdict $((SECONDS - began)) s seed=$seed" | tee -a "$runs"
}

for ((round = 1; round <= rounds; round++)); do
	for package in "${packages[@]}"; do
		if ! grep -q "^$round $package " "$runs"; then run "$round" "$package"; fi
	done
done

echo "== $(wc -l <"$runs") runs in $folder"
failures=$(grep -c ' FAIL ' "$runs" || true)
while read -r round package _ _ _ seed; do
	name=${package#*/*/*/}
	log=$folder/${name//\//.}.$round.log
	tests=$(grep -oE '^ *--- FAIL: [^ ]+' "$log" | awk '{ print $3 }' | paste -sd ' ' || true)
	echo "FAIL $package: ${tests:-no test by name} (again: SANDLANE_SEED=${seed#seed=} go test -race -shuffle=${seed#seed=} $package; output: $log)"
done < <(grep ' FAIL ' "$runs" || true)
echo "== $failures failures"
((failures == 0))
