package kube

import (
	"os"
	"regexp"
	"testing"

	"golang.org/x/mod/modfile"
)

func TestVersion(t *testing.T) {
	if v := Version(); !regexp.MustCompile(`^v1\.\d+\.\d+$`).MatchString(v) {
		t.Errorf("Version() = %q", v)
	}
	if len(Sum) == 0 {
		t.Error("kube.sum is empty")
	}
}

// The packages that both need are compiled once, if their modules have the same version:
// 700 of the 2,000 of the API server.
func TestModulesAgreeWithOurs(t *testing.T) {
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := versions(t, text), versions(t, Mod)
	common := 0
	for path, version := range ours {
		other, ok := theirs[path]
		if !ok {
			continue
		}
		if common++; other != version {
			t.Errorf("%s is %s in kube.mod and %s in go.mod: raise the lower one (`go get` beside a copy of kube.mod, see the package's comment)", path, other, version)
		}
	}
	if common < 50 {
		t.Errorf("only %d modules are in both", common)
	}
}

// versions are those of a module's requirements, after its replacements by versions.
func versions(t *testing.T, text []byte) map[string]string {
	t.Helper()
	f, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, r := range f.Require {
		all[r.Mod.Path] = r.Mod.Version
	}
	for _, r := range f.Replace {
		if _, ok := all[r.Old.Path]; ok && r.New.Version != "" {
			all[r.Old.Path] = r.New.Version
		}
	}
	return all
}
