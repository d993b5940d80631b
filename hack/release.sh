#!/usr/bin/env bash
# Writes a release into a folder: `make release DIR=… KEY=…` calls it.
#
#   sandlane-linux-ARCH          for amd64 and arm64, with the publisher's public key compiled in
#   sandlane-bundle-…            what `sandlane up` needs, for this machine's platform
#   sandlane-1.2.3.tgz …         the charts, whose version has no v
#   oci                          images for both architectures and the charts, in OCI's layout
#   install.sh, notes.md, sandlane-VERSION.spdx.json
#   SHA256SUMS[.minisig]         of all of these, signed
#
# Everything has one version and is made of a clone of the last commit: the same commit, key and
# version of Go give the same bytes. With PUSH it then copies images and charts to a registry.
# SANDLANE_BUNDLE_PASSWORD is the key's password, if it has one.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
	echo "release: $*" >&2
	exit 2
}

dir=${1:-} key=${2:-} version=${3:?it is set by make: run make release} push=${4:-}
[[ -n "$dir" && -n "$key" ]] ||
	fail "name a folder and the file of the key that signs: make release DIR=… KEY=… (bin/sandlane bundle key FILE makes one, and FILE.pub)"
[[ "$version" =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ && "$version" != *-dirty ]] ||
	fail "$version is no version of a release: commit everything, and tag the commit or give one, VERSION=v1.2.3"
[[ ! -e "$dir" || -z "$(ls -A "$dir")" ]] || fail "$dir is not empty"
[[ -z "$(git status --porcelain --untracked-files=no)" ]] || fail "there are changes that are not committed"
mkdir -p "$dir"
dir=$(cd "$dir" && pwd) key=$(cd "$(dirname "$key")" && pwd)/$(basename "$key")
public=$(tail -n 1 "$key.pub")
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet --shared . "$work/source"
cd "$work/source"
own=$(go env GOARCH)
for arch in amd64 arm64; do
	echo "== sandlane for linux/$arch"
	GOOS=linux GOARCH=$arch make --no-print-directory build VERSION="$version" BUNDLE_KEY="$public"
	cp bin/sandlane "$dir/sandlane-linux-$arch"
done
sandlane=$dir/sandlane-linux-$own
echo "== bundle for linux/$own"
wheels=()
if python3 -m pip --version >/dev/null 2>&1; then wheels=(--wheels); fi
"$sandlane" bundle make "$dir" --key "$key" "${wheels[@]}"
echo "== images"
go run -C hack/image . -root "$PWD" -version "$version" -layout "$dir/oci" -platforms linux/amd64,linux/arm64
echo "== charts and SBOM"
go run -C hack/release . -dir "$dir" -charts "$PWD/charts" -version "$version" -created "$SOURCE_DATE_EPOCH"

last=$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null || true)
{
	echo "# Sandlane $version"
	echo
	echo "Changes${last:+ since $last}:"
	echo
	git log --no-merges --format='- %s (%h)' "${last:+$last..}HEAD"
	echo
	echo "The bundle is for linux/$own alone: what it holds is run once where it is made. \`sandlane bundle make\` makes it on another machine."
} >"$dir/notes.md"
sum() { sha256sum <"$dir/sandlane-linux-$1" | cut -d' ' -f1; }
sed "s|@VERSION@|$version|; s|@KEY@|$public|; s|@SUM_AMD64@|$(sum amd64)|; s|@SUM_ARM64@|$(sum arm64)|; s|sandlane VERSION|sandlane $version|" \
	hack/install.sh >"$dir/install.sh"
chmod 755 "$dir/install.sh"

cd "$dir"
find . -type f ! -name 'SHA256SUMS*' -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum >SHA256SUMS
"$sandlane" bundle sign SHA256SUMS --key "$key"
"$sandlane" bundle verify .
if [[ -n "$push" ]]; then go run -C "$work/source/hack/release" . -dir "$dir" -push "$push"; fi
ls -l "$dir"
