package archive

import (
	"archive/tar"

	"golang.org/x/sys/unix"
)

// owner is the user of this process, and whether it may change the owners of files. The
// process may run as any user, or as root with fewer capabilities than containers have by
// default.
type owner struct {
	uid   uint32
	gives bool // the process may give files to other users
	// overrides: the process may write in folders whatever their modes.
	overrides bool
}

func ownerOf() owner {
	o := owner{uid: uint32(unix.Geteuid())} //nolint:gosec // 32 bits by definition
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData // this version has two
	if err := unix.Capget(&header, &all[0]); err == nil {
		o.gives = all[0].Effective&(1<<unix.CAP_CHOWN) != 0
		o.overrides = all[0].Effective&(1<<unix.CAP_DAC_OVERRIDE) != 0
	}
	return o
}

// restores reports whether a process with this owner can restore a file. It need not restore
// a folder of another user, which is in the image: no process in the sandbox could have given
// a folder to that user.
func (o owner) restores(stat *unix.Stat_t) bool {
	return o.gives || stat.Uid == o.uid || stat.Mode&unix.S_IFMT == unix.S_IFDIR
}

// replaces reports whether such a process can restore an entry that is no folder, in an
// open folder that the archive does not have: it makes the entry anew, or writes a file of
// its own in place if it may not write in the folder.
func (o owner) replaces(dir int, stat *unix.Stat_t) bool {
	if o.overrides || inPlace(o.uid, stat) {
		return true
	}
	return unix.Faccessat(dir, ".", unix.W_OK, unix.AT_EACCESS) == nil
}

// inPlace reports whether a user may write over a file without changing another: it is a
// regular file of the user, with one name.
func inPlace(uid uint32, stat *unix.Stat_t) bool {
	return stat.Mode&unix.S_IFMT == unix.S_IFREG && stat.Nlink == 1 && stat.Uid == uid
}

// own gives an open file its owner, unless it has that owner already: changing it, even to
// the same owner, may not be allowed.
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
	return unix.Fchmod(fd, mode)
}
