// Package kube holds the module that builds the real Kubernetes binaries and
// etcd, as embedded files: `sandlane up` builds them from here where they are
// not to be had otherwise (local/binaries is the only caller).
//
// kube.mod and kube.sum are a go.mod and a go.sum under other names, because a
// nested module could not be embedded. To change them: copy both to an empty
// folder under their real names, edit, run `go mod tidy` there, and copy them
// back. This package has no code of its own beyond reading them.
package kube

import (
	_ "embed"
	"regexp"
	"strings"
)

// Mod and Sum are the module's go.mod and go.sum.
var (
	//go:embed kube.mod
	Mod []byte
	//go:embed kube.sum
	Sum []byte
	//go:embed goflags
	goFlags string
)

// GoFlags returns the value of $GOFLAGS for all that this repository compiles. Programs
// compiled with the same flags share Go's build cache: with others, Kubernetes is
// compiled again. hack/node/build.sh and the Makefile read the same file.
func GoFlags() string { return strings.TrimSpace(goFlags) }

var requirement = regexp.MustCompile(`(?m)^\s*(?:require\s+)?k8s\.io/kubernetes (v\d+\.\d+\.\d+)(?:\s*//.*)?$`)

// Version returns the version of Kubernetes that the module builds, such as
// v1.37.2; empty if the module does not say.
func Version() string {
	m := requirement.FindSubmatch(Mod)
	if m == nil {
		return ""
	}
	return string(m[1])
}
