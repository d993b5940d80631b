//go:build failpoints

package checkpoint

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const crashVariable = "SANDLANE_TEST_CRASH"

// TestCrash kills a process at each step of a Put and of a Delete, and checks that the archive
// is then whole, or not there at all.
func TestCrash(t *testing.T) {
	if path := os.Getenv(crashVariable); path != "" {
		crash(t, path)
		return
	}
	const old, next = "the old one", "the new one, which is longer"
	for _, tc := range []struct {
		point, op, want string
		partial         bool
	}{
		{"begun", "put", old, true},
		{"written", "put", old, true},
		{"named", "put", next, false},
		{"deleted", "delete", "", false},
	} {
		f, path := newFolder(t)
		if _, err := f.Put(t.Context(), "id", strings.NewReader(old)); err != nil {
			t.Fatal(err)
		}
		points := t.TempDir()
		if err := os.MkdirAll(filepath.Join(points, "checkpoint"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(points, "checkpoint", tc.point), []byte("kill"), 0o600); err != nil {
			t.Fatal(err)
		}
		child := exec.Command(os.Args[0], "-test.run", "^TestCrash$")
		child.Env = append(os.Environ(), crashVariable+"="+path+" "+tc.op, "SANDLANE_FAILPOINTS="+points)
		out, err := child.CombinedOutput()
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%s: the child was not killed: %v %s", tc.point, err, out)
		}
		data, _, err := get(f, "id")
		if tc.want == "" && !errors.Is(err, ErrNotFound) || tc.want != "" && (err != nil || string(data) != tc.want) {
			t.Errorf("%s: %q, %v, want %q", tc.point, data, err, tc.want)
		}
		if partial := len(names(t, path)) > 1; partial != tc.partial {
			t.Errorf("%s: left %v", tc.point, names(t, path))
		}
		if all, err := f.List(t.Context()); err != nil || (len(all) == 1) != (tc.want != "") {
			t.Errorf("%s: List %+v, %v", tc.point, all, err)
		}
	}
}

// crash runs in the child process, which is killed before it ends.
func crash(t *testing.T, arguments string) {
	path, op, _ := strings.Cut(arguments, " ")
	f, err := OpenFolder(path, testMax)
	if err != nil {
		t.Fatal(err)
	}
	if op == "put" {
		_, err = f.Put(context.Background(), "id", strings.NewReader("the new one, which is longer"))
	} else {
		err = f.Delete(context.Background(), "id")
	}
	t.Fatalf("not killed: %v", err)
}
