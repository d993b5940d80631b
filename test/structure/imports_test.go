package structure

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// mayImport is the import table of the architecture (docs/design): which folders
// of this module a folder may import. A row also covers the folders below it that
// have no row of their own, and so does an entry of its list. A folder may always
// import what is below itself. Test files may also import what is in testsMayImport.
var mayImport = map[string][]string{
	"api":                   {},
	"api/crds":              {},
	"failpoint":             {},
	"kubeclient":            {"api"},
	"routecache":            {},
	"index":                 {"api", "routecache"},
	"activity":              {"routecache"},
	"extproc":               {"api", "routecache"},
	"controlplane":          {"api", "routecache"},
	"controlplane/e2b":      {},
	"controlplane/schedule": {"api"},
	"activation":            {"api", "routecache", "controlplane/schedule"},
	"credentials":           {"api"},
	"ending":                {"api"},
	"reconcilers":           {"api", "controlplane", "ending", "reconcilers"},
	"envoy":                 {},
	"local":                 {"api", "credentials", "envoy", "hack/kube", "kubeclient"},
	"local/helpers":         {},
	"local/node":            {"api", "kubeclient", "local/helpers"},
	"local/node/podinit":    {"local/node"},
	"gateway": {
		"activation", "activity", "api", "controlplane", "credentials", "ending", "envoy", "extproc", "index", "kubeclient", "routecache",
	},
	"cmd/sandlane": {
		"activation", "activity", "api", "controlplane", "credentials", "ending", "envoy", "extproc", "gateway", "hack/kube",
		"index", "kubeclient", "local", "reconcilers", "routecache",
	},
	"bench": {
		"activation", "activity", "api", "controlplane", "credentials", "ending", "envoy", "extproc", "gateway", "index", "routecache", "test/kubetest",
	},
	"bench/floor":    {},
	"sandboxd":       {},
	"cmd/sandboxd":   {"sandboxd"},
	"hack":           {},
	"test/echo":      {},
	"test/certs":     {},
	"test/faults":    {"api"},
	"test/kubetest":  {"api"},
	"test/stack":     {"api"},
	"test/e2e":       {"api", "ending", "test"},
	"test/e2b":       {"credentials", "test"},
	"test/chaos":     {"api", "ending", "test"},
	"test/history":   {"api"},
	"test/mutants":   {},
	"test/structure": {},
}

var testsMayImport = []string{"test", "api"}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		row, found := rowOf(p.dir)
		if !found {
			t.Errorf("%s: no row in mayImport: add one, and to the table in docs/design", p.dir)
			continue
		}
		allowed := append([]string{p.dir, "failpoint"}, mayImport[row]...)
		if row != p.dir {
			allowed = append(allowed, row)
		}
		for _, f := range p.files {
			for _, imported := range f.imports {
				if coversAny(allowed, imported) || f.test && coversAny(testsMayImport, imported) {
					continue
				}
				t.Errorf("%s imports %s: %s may import only %v", f.path, imported, row, mayImport[row])
			}
		}
	}
}

// The rows are there for a reason: each names a folder that exists.
func TestImportTableIsCurrent(t *testing.T) {
	dirs := []string{}
	for _, p := range packages(t) {
		dirs = append(dirs, p.dir)
	}
	for row, list := range mayImport {
		for _, folder := range append([]string{row}, list...) {
			if !slices.ContainsFunc(dirs, func(dir string) bool { return covers(folder, dir) }) {
				t.Errorf("row %s: there is no package in %s", row, folder)
			}
		}
	}
}

// rowOf returns the closest row at or above dir.
func rowOf(dir string) (string, bool) {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, found := mayImport[dir]; found {
			return dir, true
		}
	}
	return "", false
}

func covers(folder, dir string) bool {
	return dir == folder || strings.HasPrefix(dir, folder+"/")
}

func coversAny(folders []string, dir string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return covers(folder, dir) })
}
