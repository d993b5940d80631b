package archive

import (
	"archive/tar"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// owner is this process as the owner of files. It may run as any user, or as root with
// fewer capabilities than containers have by default.
type owner struct {
	uid   uint32
	gives bool // it may give files to other users
	// setsGroupIDs: it may set the set-group-ID bit of what belongs to any group, not only
	// to one of its groups.
	setsGroupIDs bool
	setsCaps     bool // it may give files capabilities
	groups       []int
}

func ownerOf() owner {
	o := owner{uid: uint32(unix.Geteuid())} //nolint:gosec // 32 bits by definition
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData // this version has two
	if err := unix.Capget(&header, &all[0]); err == nil {
		o.gives = all[0].Effective&(1<<unix.CAP_CHOWN) != 0
		o.setsGroupIDs = all[0].Effective&(1<<unix.CAP_FSETID) != 0
		o.setsCaps = all[0].Effective&(1<<unix.CAP_SETFCAP) != 0
	}
	o.groups, _ = unix.Getgroups() // without them, less is kept
	o.groups = append(o.groups, unix.Getegid())
	return o
}

// restores reports whether such a process can restore a file. A folder of another user is
// of the image, for nothing in the sandbox could give it away: it is there already.
func (o owner) restores(stat *unix.Stat_t) bool {
	return o.gives || stat.Uid == o.uid || stat.Mode&unix.S_IFMT == unix.S_IFDIR
}

// restoresMode reports whether such a process can restore the permission bits of a file
// that it makes. A folder of another user is of the image, with the bits that it has.
func (o owner) restoresMode(stat *unix.Stat_t) bool {
	if stat.Mode&unix.S_ISGID == 0 || o.setsGroupIDs || slices.Contains(o.groups, int(stat.Gid)) {
		return true
	}
	return stat.Mode&unix.S_IFMT == unix.S_IFDIR && stat.Uid != o.uid && !o.gives
}

// own gives an open file its owner. One that has it is left alone: more may not be allowed.
func own(fd int, h *tar.Header) error {
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil {
		return err
	}
	if int(is.Uid) == h.Uid && int(is.Gid) == h.Gid {
		return nil
	}
	return unix.Fchown(fd, h.Uid, h.Gid)
}

// setMode sets the permission bits of an open file, unless it has them.
func setMode(fd int, mode uint32) error {
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil {
		return err
	}
	if is.Mode&0o7777 == mode {
		return nil
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	if err := unix.Fstat(fd, &is); err != nil {
		return err
	}
	return sameMode(&is, mode)
}

// sameMode returns an error if a file has other permission bits than were just set.
func sameMode(is *unix.Stat_t, mode uint32) error {
	if is.Mode&0o7777 != mode {
		return fmt.Errorf("%w: the mode is %04o, not %04o", ErrMode, is.Mode&0o7777, mode)
	}
	return nil
}
