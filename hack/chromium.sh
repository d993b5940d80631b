#!/usr/bin/env bash
# Prints the path of a Chromium for the tests of the console's page: $CHROMIUM_BIN, one of
# this machine, or, for root on Debian, the distribution's package, which it installs: those
# of npm and PyPI fetch a browser from a place of their own, or do not run everywhere. Fails
# with a line on standard error that says what is missing.
set -euo pipefail

find_one() {
	local name
	for name in ${CHROMIUM_BIN:-chromium chromium-browser google-chrome}; do
		if command -v "$name"; then return 0; fi
	done
	return 1
}

if find_one; then exit 0; fi
if [[ -n "${CHROMIUM_BIN:-}" ]]; then
	echo "CHROMIUM_BIN=$CHROMIUM_BIN is no program" >&2
	exit 1
fi
if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
	echo "no Chromium: install it (apt-get install chromium), or name one in CHROMIUM_BIN" >&2
	exit 1
fi
# Lists and archives of its own leave their locks to others that use apt meanwhile. What is
# killed at its time is a download: it leaves no package half installed.
export DEBIAN_FRONTEND=noninteractive
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir"/{lists,archives}/partial
apt() {
	timeout "$1" apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-unsafe-io -o APT::Sandbox::User=root \
		-o Dir::State::lists="$dir/lists" -o Dir::Cache="$dir" -o Dir::Cache::archives="$dir/archives" "${@:2}" 2>&1 >/dev/null
}
packages=(-y --no-install-recommends --no-remove --no-upgrade chromium)
if ! why=$(apt 120 update && apt 600 install --download-only "${packages[@]}" && apt 0 install "${packages[@]}") || ! find_one; then
	echo "no Chromium, and apt-get could not install it: $(tail -n 1 <<<"$why")" >&2
	exit 1
fi
