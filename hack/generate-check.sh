#!/usr/bin/env bash
# Fails if generated files are not what `make generate` makes of their sources. It
# compares contents, not commits, so it also works on a changed checkout; the
# regenerated files stay.
set -euo pipefail
cd "$(dirname "$0")/.."

generated() {
	find api/crds -name '*.yaml' -print
	find docs/drawings -name '*.svg' -print
	find api controlplane gateway sandboxd -name 'zz_generated.*.go' -o -name '*.pb.go' -o -name '*.connect.go' -o -name '*.gen.go'
}

before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
generated | sort >"$before/list"
tar -cf - -T "$before/list" | tar -xf - -C "$before"

make --no-print-directory generate

status=0
while read -r path; do
	diff -u --label "$path (committed)" --label "$path (generated)" --new-file "$before/$path" "$path" || status=1
done < <(generated | sort - "$before/list" | uniq)
if ((status != 0)); then
	echo "generated files are not current: run \`make generate\` and commit what it changes" >&2
fi
exit $status
