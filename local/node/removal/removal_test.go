package removal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// child names what a process of the test binary removes.
const child = "REMOVAL_CHILD"

// nobody is the user that the process becomes if the tests run as root.
const nobody = 65534

func TestMain(m *testing.M) {
	if path := os.Getenv(child); path != "" {
		if err := removeAsChild(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// removeAsChild removes with few descriptors, and without root unless it is to keep it.
func removeAsChild(path string) error {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 200, Max: 200}); err != nil {
		return err
	}
	if os.Getuid() == 0 && os.Getenv("KEEP_ROOT") == "" {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			return err
		}
	}
	return Tree(path)
}

// deepen makes folders in each other, deeper than any path can name, and returns the last.
func deepen(t *testing.T, dir string, levels int) int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range levels {
		if err := unix.Mkdirat(fd, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Fchownat(fd, "d", owner(), owner(), 0); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err = errors.Join(err, unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	return fd
}

func owner() int {
	if os.Getuid() == 0 {
		return nobody
	}
	return os.Getuid()
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Everything goes that code in a sandbox may have made, and nothing that it points at.
func TestTree(t *testing.T) {
	for _, asRoot := range []bool{false, true} {
		if asRoot && os.Getuid() != 0 {
			continue
		}
		work := t.TempDir()
		must(t, os.Chown(work, owner(), owner()))
		tree, outside := filepath.Join(work, "tree"), filepath.Join(work, "outside")
		must(t, os.MkdirAll(filepath.Join(tree, "cache", "module"), 0o755), os.Mkdir(outside, 0o755))
		for _, file := range []string{"cache/module/file", "0", "../outside/file"} {
			must(t, os.WriteFile(filepath.Join(tree, file), nil, 0o644))
		}
		// "0" and "1" are the first names that a folder from below would get.
		must(t, os.Mkdir(filepath.Join(tree, "1"), 0o755), os.WriteFile(filepath.Join(tree, "1", "file"), nil, 0o644))
		must(t, os.Symlink(outside, filepath.Join(tree, "link")), os.Symlink(filepath.Join(outside, "file"), filepath.Join(tree, "cache", "link")))
		for i := range 3 * many {
			must(t, os.WriteFile(filepath.Join(tree, "cache", fmt.Sprint(i)), nil, 0o644))
		}
		last := deepen(t, tree, 5000)
		must(t, unix.Mkdirat(last, "e", 0o755), unix.Symlinkat(outside, last, "link"), unix.Close(last))
		must(t, filepath.Walk(work, func(path string, info os.FileInfo, _ error) error {
			if info.Name() == "d" {
				return filepath.SkipDir // deepen has seen to it, and few of its paths can be named
			}
			return os.Lchown(path, owner(), owner())
		}))
		must(t, os.Chmod(filepath.Join(tree, "1"), 0), os.Chmod(filepath.Join(tree, "cache", "module"), 0o555), os.Chmod(filepath.Join(tree, "cache"), 0o555))

		cmd := exec.Command(os.Args[0])
		cmd.Dir, cmd.Env = work, append(os.Environ(), child+"=tree")
		if asRoot {
			cmd.Env = append(cmd.Env, "KEEP_ROOT=yes")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("as root %v: %v: %.500s", asRoot, err, out)
		}
		if _, err := os.Lstat(tree); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("as root %v: the tree is there: %v", asRoot, err)
			_ = exec.Command("sh", "-c", "chmod -R u+rwx "+tree+"; rm -rf "+tree).Run() // for t.TempDir
		}
		if _, err := os.Stat(filepath.Join(outside, "file")); err != nil {
			t.Errorf("as root %v: a file that a link points at: %v", asRoot, err)
		}
	}
}

// A file that cannot be removed is told, and the others are gone.
func TestTreeTellsWhatIsLeft(t *testing.T) {
	dir := t.TempDir()
	if err := Tree(filepath.Join(dir, "nothing", "here")); err != nil {
		t.Error("nothing is no error:", err)
	}
	t.Chdir(dir)
	must(t, os.WriteFile("file", nil, 0o644))
	for _, path := range []string{"", ".", ".."} {
		if err := Tree(path); err == nil {
			t.Errorf("%q was removed", path)
		}
	}
	if _, err := os.Stat("file"); err != nil {
		t.Error("a path without a name:", err)
	}
	if os.Getuid() != 0 {
		t.Skip("only root can make another user's folder")
	}
	work := filepath.Join(dir, "work")
	must(t, os.MkdirAll(filepath.Join(work, "tree", "a", "theirs"), 0o755), os.Mkdir(filepath.Join(work, "tree", "b"), 0o755))
	must(t, os.WriteFile(filepath.Join(work, "tree", "a", "theirs", "file"), nil, 0o644))
	for _, path := range []string{"", "tree", "tree/a", "tree/b"} {
		must(t, os.Chown(filepath.Join(work, path), nobody, nobody))
	}
	cmd := exec.Command(os.Args[0])
	cmd.Dir, cmd.Env = work, append(os.Environ(), child+"=tree")
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("another user's file was removed, or not told: %s", out)
	}
	if _, err := os.Stat(filepath.Join(work, "tree", "b")); err == nil {
		t.Error("a folder is left because another cannot be removed")
	}
}

// Several removals of one tree at the same moment are no error to any.
func TestTreeIsRemovedByMany(t *testing.T) {
	for range 20 {
		dir := filepath.Join(t.TempDir(), "tree")
		for _, sub := range []string{"a/b/c", "a/d", "e/f/g/h", "i"} {
			if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
				t.Fatal(err)
			}
			for i := range 20 {
				if err := os.WriteFile(filepath.Join(dir, sub, strconv.Itoa(i)), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := Tree(dir); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("it is left: %v", err)
		}
	}
}
