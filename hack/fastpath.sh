#!/usr/bin/env bash
# Builds the module of the fast path into the folder of embedded programs, with the
# machine's C compiler, or where it fails with the ziglang wheel from PyPI if pip is there. Without
# either it says so and removes what was there: ExtProc then answers every request.
# What was built is kept by the hash of its source.
set -euo pipefail
cd "$(dirname "$0")/.."

# The pinned ziglang, and the hash of its wheel for linux/amd64.
zig=0.15.2
zig_sum=806316453d1ede7174ed3fefb8e5348154629089c3bb5fe812dfd0e172fac130
into=local/helpers/bin/fastpath.so
source=fastpath/module
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sandlane/fastpath

if [[ "$(go env GOOS)/$(go env GOARCH)" != linux/amd64 ]]; then
	echo "fastpath: not proven on $(go env GOOS)/$(go env GOARCH), so it is not built" >&2
	rm -f "$into"
	exit 0
fi
sum=$(cat "$source"/*.[ch] "$0" | sha256sum | cut -c1-16)
built=$cache/fastpath-$sum-amd64.so
if [[ ! -f "$built" ]]; then
	mkdir -p "$cache"
	new=$(mktemp "$cache/build-XXXXXX")
	trap 'rm -f "$new"' EXIT
	flags=(-std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -s -o "$new" "$source/module.c")
	if command -v cc >/dev/null 2>&1; then
		cc "${flags[@]}" || : >"$new" # a compiler without its library, say
	fi
	if [[ ! -s "$new" ]] && python3 -m pip --version >/dev/null 2>&1; then
		wheel=$cache/ziglang-$zig
		if [[ ! -d "$wheel" ]]; then
			echo "fastpath: no C compiler that works: downloading ziglang $zig (about 90 MB)" >&2
			rm -rf "$wheel.new"
			python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --target "$wheel.new" \
				--require-hashes -r <(echo "ziglang==$zig --hash=sha256:$zig_sum") && mv "$wheel.new" "$wheel" || true
		fi
		[[ -d "$wheel" ]] && PYTHONPATH=$wheel python3 -m ziglang cc -target x86_64-linux-gnu.2.17 "${flags[@]}" || : >"$new"
	fi
	if [[ ! -s "$new" ]]; then
		echo "fastpath: neither a C compiler that works nor ziglang: built without the fast path" >&2
		rm -f "$into"
		exit 0
	fi
	chmod 0644 "$new"
	mv "$new" "$built"
	trap - EXIT
fi
if ! cmp -s "$built" "$into"; then # an Envoy may run the old one, which must stay whole
	cp "$built" "$into.new"
	mv "$into.new" "$into"
fi
