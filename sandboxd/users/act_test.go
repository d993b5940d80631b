package users

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func privileged(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("acting for another user needs root")
	}
}

// Acts of several users at the same time have each its own user's rights, and root's are
// back on every thread when they are over.
func TestActsInParallel(t *testing.T) {
	privileged(t)
	dir := t.TempDir()
	secret := dir + "/secret"
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777), os.WriteFile(secret, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var acts sync.WaitGroup
	for i := range 16 {
		u := User{Name: "u", UID: uint32(2000 + i%4), GID: uint32(3000 + i%4), Groups: []uint32{uint32(3000 + i%4), 27}}
		acts.Go(func() {
			for range 100 {
				err := u.Act(func() error {
					if _, err := os.ReadFile(secret); !errors.Is(err, fs.ErrPermission) {
						t.Errorf("root's file as another: %v", err)
					}
					f, err := os.CreateTemp(dir, "")
					if err != nil {
						return err
					}
					defer func() { _ = f.Close() }()
					info, err := f.Stat()
					if err != nil {
						return err
					}
					if is := info.Sys().(*syscall.Stat_t); is.Uid != u.UID || is.Gid != u.GID {
						t.Errorf("made by %d:%d instead of %d:%d", is.Uid, is.Gid, u.UID, u.GID)
					}
					return os.Remove(f.Name())
				})
				if err != nil {
					t.Error(err)
				}
				if _, err := os.ReadFile(secret); err != nil {
					t.Errorf("as root again: %v", err)
				}
			}
		})
	}
	acts.Wait()
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile(task)
		if err == nil && !strings.Contains(string(status), "\nUid:\t0\t0\t0\t0\n") {
			t.Errorf("%s: a thread is left with another's rights", task)
		}
	}
}

// Supplementary groups open what they open, and sandboxd's own are not kept.
func TestActHasTheUsersGroups(t *testing.T) {
	privileged(t)
	dir := t.TempDir()
	shared := dir + "/shared"
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.WriteFile(shared, nil, 0o640), os.Chown(shared, 0, 4000)); err != nil {
		t.Fatal(err)
	}
	read := func() error { _, err := os.ReadFile(shared); return err }
	if err := (User{UID: 2000, GID: 2000, Groups: []uint32{2000, 4000}}).Act(read); err != nil {
		t.Errorf("a member: %v", err)
	}
	if err := (User{UID: 2000, GID: 2000, Groups: []uint32{2000}}).Act(read); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("not a member: %v", err)
	}
}

// Where the rights cannot be taken, or the thread has not root's, fn does not run; and a
// panic leaves root's rights behind.
func TestActFailsClosed(t *testing.T) {
	privileged(t)
	run := func(u User) (ran bool, err error) {
		err = u.Act(func() error { ran = true; return nil })
		return ran, err
	}
	if ran, err := run(User{UID: ^uint32(0), GID: 2000}); ran || err == nil { // -1: the call changes nothing
		t.Errorf("the user -1: ran %v, %v", ran, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := setEUID(2000); err != nil {
			t.Error(err)
		}
		if ran, err := run(User{UID: 2001, GID: 2001}); ran || err == nil {
			t.Errorf("on a thread of another's: ran %v, %v", ran, err)
		}
		// The thread would outlive this goroutine if it is the process's first, and
		// TestActsInParallel looks at all of them.
		if err := setEUID(0); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread() // of Act, which kept it
	}()
	<-done
	func() {
		defer func() { _ = recover() }()
		_ = User{UID: 2000, GID: 2000}.Act(func() error { panic("fn") })
	}()
	if uid := unix.Geteuid(); uid != 0 {
		t.Errorf("after a panic the thread is user %d's", uid)
	}
}
