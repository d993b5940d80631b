#!/usr/bin/env bash
# Looks for flaky tests: runs the packages whose tests start an API server or Envoy
# again and again, in random order, on processors that are kept busy: several packages at
# once (-j, three a processor) are each other's load, and programs that only compute can
# be added (-l, none).
#
#   hack/flaky.sh [-n rounds] [-j packages at once] [-l hogs] [-d folder] [package…]
#
# Each run leaves one line in runs.txt (round, package, ok or FAIL, seconds, seed) of
# a folder outside the checkout, one folder a version of the sources, and a failed one
# its output. Started again it goes on where it was stopped. At the end it prints
# what failed and how to run that again; a failure is its exit code.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=10 jobs=$(($(nproc) * 3)) hogs=0 folder=''
limit=900 # seconds that one run may take
while getopts 'n:j:l:d:h' flag; do
	case "$flag" in
	n) rounds=$OPTARG ;;
	j) jobs=$OPTARG ;;
	l) hogs=$OPTARG ;;
	d) folder=$OPTARG ;;
	*) sed -n '2,/^set/{s/^# \{0,1\}//p}' "$0" && exit ;;
	esac
done
shift $((OPTIND - 1))

if (($# > 0)); then
	mapfile -t packages < <(go list "$@")
else
	mapfile -t packages < <(go list -f '{{.Dir}} {{.ImportPath}}' ./... | grep -vE '/test/(e2e|e2b|docs|referee|chaos)$' |
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

# busy starts the hogs. Each ends by itself in any case.
hogging=()
busy() {
	for ((i = 0; i < hogs; i++)); do
		timeout 4h nice -n 10 bash -c 'while :; do :; done' &
		hogging+=($!)
	done
}
running=() # the runs under way, which end their own test program
quiet() {
	kill ${running[@]+"${running[@]}"} ${hogging[@]+"${hogging[@]}"} 2>/dev/null || true
}
trap quiet EXIT
trap 'exit 130' INT TERM

race=(-race)
compiler=$(go env CC)
if ! command -v "${compiler%% *}" >/dev/null; then race=(); fi

# compile makes the test program of a package.
compile() {
	if [[ ! -x "$2" ]]; then CGO_ENABLED=${#race[@]} go test ${race[@]+"${race[@]}"} -c -o "$2" "$1"; fi
}

# run runs one package's tests once and adds its line.
run() {
	local round=$1 package=$2 binary=$3 log=$4 verdict=ok began=$SECONDS test=''
	local seed=$((SRANDOM % 1000000000 + 1))
	trap 'if [[ -n "$test" ]]; then kill "$test" 2>/dev/null || true; fi; exit 130' TERM
	(cd "$(go list -f '{{.Dir}}' "$package")" && SANDLANE_SEED=$seed exec nice -n 10 timeout -k 30 $((limit + 60)) \
		"$binary" -test.v -test.shuffle "$seed" -test.timeout "${limit}s") >"$log" 2>&1 &
	test=$!
	wait "$test" || verdict=FAIL
	[[ $verdict == FAIL ]] || rm "$log"
	echo "$round $package $verdict $((SECONDS - began)) s seed=$seed" | tee -a "$runs"
}

# finish waits for one of the runs under way.
finish() {
	local ended='' still=()
	wait -n -p ended "${running[@]}" || true
	if [[ -z "${ended:-}" ]]; then echo "flaky.sh: it needs bash 5.1 or newer" >&2 && exit 1; fi
	for pid in "${running[@]}"; do
		if [[ "$pid" != "$ended" ]]; then still+=("$pid"); fi
	done
	running=(${still[@]+"${still[@]}"})
}

tested=() # the packages that have tests
for package in "${packages[@]}"; do
	name=${package#*/*/*/}
	compile "$package" "$folder/bin/${name//\//.}.test"
	if [[ -x "$folder/bin/${name//\//.}.test" ]]; then tested+=("$package"); fi
done
busy
for ((round = 1; round <= rounds; round++)); do
	for package in "${tested[@]}"; do
		if grep -q "^$round $package " "$runs"; then continue; fi
		if ((${#running[@]} >= jobs)); then finish; fi
		name=${package#*/*/*/}
		run "$round" "$package" "$folder/bin/${name//\//.}.test" "$folder/${name//\//.}.$round.log" &
		running+=($!)
	done
done
while ((${#running[@]} > 0)); do finish; done

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
