package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// On overlayfs, which is the root of most containers, a write to a file of the image copies
// the folders around it into the container's layer, each with a new ctime. That looks as if
// someone had moved them, and nearly always nobody can: rename(2) refuses a folder that is in
// the image (EXDEV), unless the mount has redirect_dir=on. The kernel gives such a folder one
// link (ovl_getattr: "nlink=1 seems to pacify find"), and one that is in the container's layer
// alone as many as the file system below has, at least two; one again on btrfs.
//
// So a changed folder with two links or more may have been moved, with files in it that are
// older than Since, as an entrypoint may make them before sandboxd starts. One with a single
// link was not, or (on btrfs) all that is in it was made in this container: that has a ctime
// since the start, but for what an entrypoint made before. Then the restore fails
// (ErrMismatch), because the folder's names are in the archive.

// parameters is where the kernel has the defaults of overlayfs.
const parameters = "/sys/module/overlay/parameters/"

// imageStays reports whether a mount is overlayfs on which no folder of the image can be
// moved. It reports false if it cannot find out: more is kept then.
func imageStays(m mount) bool {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(m.fd, &stat); err != nil || stat.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return false
	}
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return false
	}
	redirects, err := os.ReadFile(parameters + "redirect_dir")
	if err != nil {
		return false
	}
	metacopies, err := os.ReadFile(parameters + "metacopy")
	if errors.Is(err, fs.ErrNotExist) { // before Linux 4.19
		metacopies = []byte("N")
	}
	return !movesFolders(string(mounts), m.root.dev, string(redirects), string(metacopies))
}

// movesFolders reports whether folders of lower layers can be renamed on the overlayfs with a
// device number. Options that are as the kernel's default are not in mountinfo; redirects and
// metacopies are the defaults. metacopy=on turns redirect_dir on, without showing it in some
// kernels.
func movesFolders(mountinfo string, dev uint64, redirects, metacopies string) bool {
	device := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	for line := range strings.Lines(mountinfo) {
		// Before the dash: ID, parent, device, …; behind it: type, source, the options.
		before, behind, _ := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(behind)
		if len(fields) < 3 || fields[2] != device || len(rest) < 3 || rest[0] != "overlay" {
			continue
		}
		return isOn(rest[2], "redirect_dir", redirects) || isOn(rest[2], "metacopy", metacopies)
	}
	return true
}

func isOn(options, name, byDefault string) bool {
	for option := range strings.SplitSeq(options, ",") {
		if value, found := strings.CutPrefix(option, name+"="); found {
			return value == "on"
		}
	}
	return strings.TrimSpace(byDefault) != "N"
}

// imageFolder reports whether a file is a folder that is in the image too. It takes all
// folders for that where they have one link, as on btrfs.
func (a *writer) imageFolder(stat *unix.Stat_t) bool {
	return a.imageStays && stat.Mode&unix.S_IFMT == unix.S_IFDIR && stat.Nlink == 1
}

// mayBeMoved reports whether a folder may have been moved to where it is, with older files
// in it.
func (a *writer) mayBeMoved(stat *unix.Stat_t) bool {
	return a.changed(stat) && !a.imageFolder(stat)
}
