#!/usr/bin/env bash
# Starts the product in a fresh state folder, sends the first request of a new
# sandbox through it, and stops it again.
set -euo pipefail
cd "$(dirname "$0")/.."

state=$(mktemp -d)
finish() {
	local status=$?
	if ((status != 0)); then
		bin/sandlane status --state "$state" || true
		tail -n 20 "$state"/logs/* 2>/dev/null || true
	fi
	bin/sandlane down --state "$state" || status=1
	rm -rf "$state" || status=1
	exit $status
}
trap finish EXIT

make --no-print-directory build
bin/sandlane up -d --state "$state" --port 0
url=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["gatewayURL"])' "$state/up.json")
answer=$(curl -fsS --max-time 30 -H 'X-Sandbox-Id: smoke' -H 'X-Sandbox-Port: 8000' "$url/")
echo "$answer"
python3 -c 'import json, sys; sys.exit(json.loads(sys.argv[1])["method"] != "GET")' "$answer"
bin/sandlane kubectl --state "$state" get sandboxpools,sandboxes
bin/sandlane status --state "$state"
