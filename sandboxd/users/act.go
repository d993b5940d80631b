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

// root is what this process began with: whether it may act for others, and the group
// and supplementary groups of its threads.
var root = credentials{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid()), groups: ownGroups()}

// keepsCapabilities reports whether this process was started so that its capabilities
// outlast a change of users; a user would have root's rights to files then.
var keepsCapabilities = func() bool {
	const noSetuidFixup = 1 << 2 // SECBIT_NO_SETUID_FIXUP
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	return err == nil && bits&noSetuidFixup != 0 // an error: a kernel that has no such bits
}()

// credentials are what the kernel looks at when a thread uses a file. Leaving user 0
// takes the thread's effective capabilities with it, and returning brings them back.
type credentials struct {
	uid, gid uint32
	groups   []uint32
}

// Act runs fn with the user's rights: what fn opens, makes, renames or removes is what
// the user itself could, whatever links lead where, and what it makes is the user's. If
// the rights cannot be taken fn does not run. It is safe for concurrent use.
//
// Where sandboxd is not root, or the user is root, fn just runs.
//
// fn keeps one thread of this process for itself. It must not start goroutines that use
// files, wait for a client, or call Act.
//
// # Threads
//
// Rights belong to a thread, and Go would give them to all threads at once, so they are
// set by raw system calls on a thread that no other goroutine runs on. Go starts no
// thread from a locked one, so none inherits them. Each change is read back. A thread
// that does not come back to root's rights stays locked: Act fails on its goroutine from
// then on, and the thread ends with the goroutine.
//
// The effective user ID is set, and not the file system's (setfsuid): gVisor has no
// setfsuid, and this drops all effective capabilities instead of those about files alone.
func (u User) Act(fn func() error) (err error) {
	if root.uid != 0 || u.UID == 0 {
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

// take gives this thread alone the credentials. Groups need rights, which user 0 has: on
// the way there the user comes first, on the way back last.
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
