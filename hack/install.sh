#!/bin/sh
# Installs sandlane VERSION into ~/.local/bin from where its release lies, without root:
#
#   sh install.sh https://where.the/release/lies
#
# What it trusts is itself: `make release` wrote into this file the SHA-256 of the programs and
# the publisher's key. So get this file from the publisher; the server of the release may be
# anyone's. It runs nothing that has another sum, then has the program check the signature of
# the release's sums, and minisign too, if that is installed.
set -eu

version='@VERSION@' key='@KEY@'
sum_amd64='@SUM_AMD64@' sum_arm64='@SUM_ARM64@'

fail() {
	echo "install: $*" >&2
	exit 1
}

fetch() {
	if command -v curl >/dev/null; then
		curl -fsSL -o "$work/$1" "$from/$1"
	elif command -v wget >/dev/null; then
		wget -q -O "$work/$1" "$from/$1"
	else
		fail "install curl or wget"
	fi || fail "could not download $from/$1"
}

main() {
	[ $# = 1 ] || fail "name the URL of the release's folder: sh install.sh URL"
	from=${1%/} sum='' work=''
	[ "$(uname -s)" = Linux ] || fail "there is sandlane for Linux alone"
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 sum=$sum_amd64 ;;
	aarch64 | arm64) arch=arm64 sum=$sum_arm64 ;;
	*) fail "there is no sandlane for $(uname -m), only for x86_64 and aarch64" ;;
	esac
	program=sandlane-linux-$arch bin=${HOME:?install: set HOME}/.local/bin
	mkdir -p "$bin"
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM
	work=$(mktemp -d "$bin/.sandlane-XXXXXX") # where programs may run, and beside the name that it gets
	for file in "$program" SHA256SUMS SHA256SUMS.minisig; do fetch "$file"; done
	echo "$sum  $work/$program" | sha256sum -c - >/dev/null 2>&1 || fail "$program is not that of sandlane $version: nothing was installed"
	if command -v minisign >/dev/null; then
		minisign -Vq -P "$key" -m "$work/SHA256SUMS" || fail "the signature is not the publisher's: nothing was installed"
	fi
	chmod 755 "$work/$program"
	"$work/$program" bundle verify "$work" "$program" || fail "the release is not the publisher's: nothing was installed"
	mv -f "$work/$program" "$bin/sandlane"
	echo "sandlane $version is $bin/sandlane. Start it with: sudo $bin/sandlane up --bundle $from"
	case :$PATH: in *":$bin:"*) ;; *) echo "note: $bin is not on PATH" ;; esac
}

main "$@" # all of this file was read before anything ran
