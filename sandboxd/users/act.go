package users

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// root has the credentials with which this process began. Only a process that began as user 0
// can act as other users.
var root = credentials{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid()), groups: ownGroups()}

// keepsCapabilities is true if this process was started in a way that its threads keep their
// capabilities when they change users; a user would then have root's rights to files.
var keepsCapabilities = func() bool {
	const noSetuidFixup = 1 << 2 // SECBIT_NO_SETUID_FIXUP
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	return err == nil && bits&noSetuidFixup != 0 // an error: a kernel that has no such bits
}()

// credentials are what the kernel checks when a thread uses a file. A thread that leaves
// user 0 loses its effective capabilities, and gets them back when it returns.
type credentials struct {
	uid, gid uint32
	groups   []uint32
}

// Act runs fn with the user's rights: fn can open, make, rename and remove only files for
// which the user has the rights, also through symbolic links, and the files that it makes
// belong to the user. If the rights cannot be taken, fn does not run. It is safe for
// concurrent use.
//
// If sandboxd is not root, or the user is root or acts as root, Act only calls fn.
//
// While fn runs, a thread of this process is reserved for it. fn must not start goroutines
// that use files, wait for a client, or call Act.
//
// # Threads
//
// Rights belong to a thread, and Go's own calls would change those of all threads, so Act
// sets them by raw system calls on a thread that no other goroutine uses. Go starts no new
// thread from a locked one, so that no thread inherits them. Each change is read back. A
// thread that cannot return to root's rights stays locked: Act fails on its goroutine from
// then on, and the thread ends with the goroutine.
//
// Act sets the effective user ID and not the one for files (setfsuid), because gVisor has no
// setfsuid, and because this drops all effective capabilities and not only those for files.
func (u User) Act(fn func() error) (err error) {
	if root.uid != 0 || u.UID == 0 || u.AsRoot {
		return fn()
	}
	if keepsCapabilities {
		return errors.New("acting for another user: sandboxd was started with the secure bit NO_SETUID_FIXUP")
	}
	runtime.LockOSThread()
	if unix.Geteuid() != 0 {
		return errors.New("a thread of sandboxd has lost its rights") // see above; it stays locked
	}
	defer func() {
		if back := root.take(); back != nil {
			err = errors.Join(err, fmt.Errorf("returning from the rights of '%s': %w", u.Name, back))
			return // the thread stays locked
		}
		runtime.UnlockOSThread()
	}()
	if err := (credentials{u.UID, u.GID, u.Groups}).take(); err != nil {
		return fmt.Errorf("taking the rights of '%s' (sandboxd needs the capabilities SETUID and SETGID): %w", u.Name, err)
	}
	return fn()
}

// take gives the credentials to this thread only. Changing groups needs the rights of user
// 0, so the user is set first on the way to user 0, and last on the way to another user.
func (c credentials) take() error {
	if c.uid == 0 {
		if err := setEUID(0); err != nil {
			return err
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(c.groups)), uintptr(unsafe.Pointer(unsafe.SliceData(c.groups))), 0); errno != 0 {
		return os.NewSyscallError("setgroups", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, unchanged, uintptr(c.gid), unchanged); errno != 0 {
		return os.NewSyscallError("setresgid", errno)
	}
	if c.uid != 0 {
		if err := setEUID(c.uid); err != nil {
			return err
		}
	}
	return c.verify()
}

const unchanged = ^uintptr(0)

func setEUID(uid uint32) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, uintptr(uid), unchanged); errno != 0 {
		return os.NewSyscallError("setresuid", errno)
	}
	return nil
}

// verify reads the credentials of this thread.
func (c credentials) verify() error {
	got := credentials{uint32(unix.Geteuid()), uint32(unix.Getegid()), ownGroups()}
	want := slices.Sorted(slices.Values(c.groups))
	if slices.Sort(got.groups); got.uid != c.uid || got.gid != c.gid || !slices.Equal(got.groups, want) {
		return fmt.Errorf("a thread has user %d, group %d and groups %v instead of %d, %d and %v", got.uid, got.gid, got.groups, c.uid, c.gid, want)
	}
	return nil
}

// ownGroups returns the supplementary groups of this thread.
func ownGroups() []uint32 {
	groups, err := unix.Getgroups()
	if err != nil {
		return []uint32{^uint32(0)} // no group: nothing is equal to it
	}
	all := make([]uint32, len(groups))
	for i, group := range groups {
		all[i] = uint32(group)
	}
	return all
}
