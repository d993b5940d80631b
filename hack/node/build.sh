#!/usr/bin/env bash
# Builds the programs of a real Kubernetes node and Helm into the user's cache,
# from the modules beside this file, and prints their folder as NODE_BIN=… on
# standard output; progress goes to standard error. What is there already is not
# built again. test/node boots a node from them; `sandlane prepare` brings the
# rest (etcd, kube-apiserver, kube-controller-manager, kubectl).
#
# runc and nft are C programs, or need C libraries, so they come from the
# distribution: those on PATH, else Debian's packages, unpacked into the cache
# and not installed.
set -euo pipefail
cd "$(dirname "$0")"

say() { echo "node: $*" >&2; }
fail() {
	say "$*"
	exit 1
}

modules=(kube containerd coredns ../helm)
key=$(for m in "${modules[@]}"; do cat "$m/go.mod" "$m/go.sum"; done | cat - <(go env GOVERSION GOARCH) | sha256sum | cut -c1-12)
# With the flags of local/binaries, which builds the API server, most is compiled already.
flags=$(<../kube/goflags)
version=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' kube/go.mod)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sandlane/node
dir=$cache/$version-$key
mkdir -p "$dir/cni"

exec 9>"$cache/lock"
flock --nonblock 9 || { say "waiting for another build of the node's programs" && flock 9; }

# A program appears in the folder by a rename, complete or not at all.
build() { # module, tags, package, name below the folder, further linker flags
	local to=$dir/$4 began=$SECONDS
	[[ -x $to ]] && return
	say "building ${4##*/}"
	GOFLAGS=$flags GOGC=400 GOMEMLIMIT=2GiB GOWORK=off CGO_ENABLED=0 go build -C "$1" -mod=readonly -buildvcs=false -tags "$2" \
		-ldflags "-s -w ${5:-}" -o "$to.new" "$3"
	mv "$to.new" "$to"
	say "built ${4##*/} in $((SECONDS - began)) s"
}

minor=${version#v1.}
stamp="-X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1"
stamp+=" -X k8s.io/component-base/version.gitMinor=${minor%%.*} -X k8s.io/client-go/pkg/version.gitVersion=$version"
containerd=github.com/containerd/containerd/v2/cmd
plugins=github.com/containernetworking/plugins/plugins
slim='no_btrfs no_devmapper no_zfs'
for program in containerd containerd-shim-runc-v2 ctr; do
	build containerd "$slim" "$containerd/$program" "$program"
done
for plugin in main/ptp main/loopback ipam/host-local; do
	build containerd '' "$plugins/$plugin" "cni/${plugin##*/}"
done
for program in kubelet kube-scheduler kube-proxy; do
	build kube '' "k8s.io/kubernetes/cmd/$program" "$program" "$stamp"
done
build coredns '' . coredns
build ../helm '' helm.sh/helm/v4/cmd/helm helm

# unpack gets Debian packages and puts their files below the cache's folder.
unpack() {
	[[ -d $dir/debian ]] && return
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "install runc and nftables: they are not on PATH, and this is no Debian to get them from"
	say "getting runc and nftables from Debian"
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	chmod 755 "$tmp"
	local packages=(runc nftables libnftables1 libnftnl11 libseccomp2 libmnl0 libjansson4 libxtables12 libedit2)
	(cd "$tmp" && apt-get download "${packages[@]}" >/dev/null 2>&1) || {
		apt-get update >/dev/null
		(cd "$tmp" && apt-get download "${packages[@]}" >&2)
	}
	rm -rf "$dir/debian.new"
	for package in "$tmp"/*.deb; do dpkg-deb --extract "$package" "$dir/debian.new"; done
	mv "$dir/debian.new" "$dir/debian"
}

for program in runc nft; do
	[[ -x $dir/$program ]] && continue
	if path=$(command -v "$program"); then
		ln -sf "$path" "$dir/$program"
		continue
	fi
	unpack
	libraries=$(cd "$dir" && find debian -type d -name '*-linux-gnu' -printf '$here/%p:')
	cat >"$dir/$program.new" <<-END
		#!/bin/sh
		here=\$(dirname "\$(readlink -f "\$0")")
		LD_LIBRARY_PATH=${libraries%:} exec "\$here/debian/usr/sbin/$program" "\$@"
	END
	chmod 755 "$dir/$program.new"
	mv "$dir/$program.new" "$dir/$program"
done
echo "NODE_BIN=$dir"
