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
export DEBIAN_FRONTEND=noninteractive
apt() { apt-get -qq -o DPkg::Lock::Timeout=300 "$@" 2>&1 >/dev/null; }
if ! why=$(apt update && apt install -y --no-install-recommends chromium) || ! find_one; then
	echo "no Chromium, and apt-get could not install it: $(tail -n 1 <<<"$why")" >&2
	exit 1
fi
