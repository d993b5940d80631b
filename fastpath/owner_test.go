package fastpath

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/cmodule"
)

// A folder or a control file that another user could have written is no table: neither
// the gateway opens it, nor does Envoy answer from it.
func TestTableOfAnotherUser(t *testing.T) {
	control := func(folder string) string { return filepath.Join(folder, "control") }
	for name, tc := range map[string]struct {
		change func(folder string) error
		root   bool
	}{
		"all may write the folder": {change: func(f string) error { return os.Chmod(f, 0o777) }},
		"all may write the file":   {change: func(f string) error { return os.Chmod(control(f), 0o666) }},
		"the file is a link": {change: func(f string) error {
			if err := os.Rename(control(f), control(f)+".real"); err != nil {
				return err
			}
			return os.Symlink("control.real", control(f))
		}},
		"another's folder": {change: func(f string) error { return os.Chown(f, 65534, -1) }, root: true},
		"another's file":   {change: func(f string) error { return os.Chown(control(f), 65534, -1) }, root: true},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.root && os.Geteuid() != 0 {
				t.Skip("needs root, to give files away")
			}
			folder := cmodule.Folder(t)
			open := func() (*Table, error) {
				return Open(Options{Folder: folder, Size: 100, Lease: func() time.Duration { return time.Hour }})
			}
			table, err := open()
			if err != nil {
				t.Fatal(err)
			}
			if err := table.Close(); err != nil {
				t.Fatal(err)
			}
			if err := tc.change(folder); err != nil {
				t.Fatal(err)
			}
			if table, err := open(); err == nil {
				_ = table.Close()
				t.Error("the gateway opened it")
			}
		})
	}
}

// Envoy's user must own the control file that it takes over.
func TestModuleTakesOverItsUsersTableAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a file away")
	}
	w := newWorld(t, 100)
	if err := os.Chown(filepath.Join(w.folder, "control"), 65534, -1); err != nil {
		t.Fatal(err)
	}
	p := cmodule.Start(t, cmodule.Build(t), "run", w.folder)
	p.Ask(t, request(generatedID, "80")...)
	if n := w.table.control.load(offTerms); n != 0 {
		t.Errorf("%d Envoys took over another user's table", n)
	}
}
