#!/usr/bin/env bash
# Writes a release for this machine's platform into a folder: sandlane with the publisher's
# public key compiled in, the bundle with the programs that `sandlane up` needs, and the
# digests of both, signed. `make release DIR=… KEY=…` calls it. SANDLANE_BUNDLE_PASSWORD is
# the key's password, if it has one.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=${1:-} key=${2:-} version=${3:?it is set by make: run make release}
if [[ -z "$dir" || -z "$key" ]]; then
	echo "release: name a folder and the file of the key that signs: make release DIR=… KEY=… (bin/sandlane bundle key FILE makes one, and FILE.pub)" >&2
	exit 2
fi
mkdir -p "$dir"
public=$(tail -n 1 "$key.pub")
make --no-print-directory build VERSION="$version" BUNDLE_KEY="$public"
cp bin/sandlane "$dir/sandlane-$(go env GOOS)-$(go env GOARCH)"
bin/sandlane bundle make "$dir" --key "$key"
(cd "$dir" && sha256sum sandlane-* >SHA256SUMS)
bin/sandlane bundle sign "$dir/SHA256SUMS" --key "$key"
ls -l "$dir"
