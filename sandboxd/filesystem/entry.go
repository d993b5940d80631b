package filesystem

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
)

// XattrPrefix begins the names of the extended attributes that hold metadata.
const XattrPrefix = "user.e2b."

// Namer names user and group IDs.
type Namer interface {
	Names(uid, gid uint32) (user, group string)
}

// Describe describes the entry at an absolute path. For a symbolic link, type, mode and
// metadata are those of the file that it leads to, as E2B's SDKs expect; all else describes
// the link itself. A link whose file is missing, or that this thread may not see, has no type
// and no mode.
func Describe(path string, namer Namer) (*filesystempb.EntryInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	entry := &filesystempb.EntryInfo{
		Name: valid(filepath.Base(path)), Path: valid(path),
		Size: info.Size(), Permissions: info.Mode().String(), ModifiedTime: timestamppb.New(info.ModTime()),
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		entry.Owner, entry.Group = namer.Names(stat.Uid, stat.Gid)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		entry.IsSymlink = true
		target, err := filepath.EvalSymlinks(path)
		if err == nil {
			info, err = os.Lstat(target)
		} else {
			target, _ = os.Readlink(path)
		}
		entry.SymlinkTarget = new(valid(target))
		if err != nil {
			return entry, nil
		}
	}
	entry.Type, entry.Mode = fileType(info.Mode()), uint32(info.Mode().Perm())
	if info.Mode().IsRegular() {
		entry.Metadata = Metadata(path)
	}
	return entry, nil
}

func fileType(mode fs.FileMode) filesystempb.FileType {
	switch {
	case mode.IsRegular():
		return filesystempb.FileType_FILE_TYPE_FILE
	case mode.IsDir():
		return filesystempb.FileType_FILE_TYPE_DIRECTORY
	case mode&fs.ModeSymlink != 0:
		return filesystempb.FileType_FILE_TYPE_SYMLINK
	}
	return filesystempb.FileType_FILE_TYPE_UNSPECIFIED
}

// Metadata returns the metadata of a file, nil when it has none or its file
// system keeps none.
func Metadata(path string) map[string]string {
	var all map[string]string
	for _, key := range keys(readXattr(func(buf []byte) (int, error) { return unix.Listxattr(path, buf) })) {
		if all == nil {
			all = map[string]string{}
		}
		all[valid(key)] = valid(string(readXattr(func(buf []byte) (int, error) { return unix.Getxattr(path, XattrPrefix+key, buf) })))
	}
	return all
}

// MetadataKeys returns the keys of an open file's metadata.
func MetadataKeys(fd int) []string {
	return keys(readXattr(func(buf []byte) (int, error) { return unix.Flistxattr(fd, buf) }))
}

// keys returns the keys of metadata in a list of extended attributes.
func keys(list []byte) (all []string) {
	for name := range strings.SplitSeq(string(list), "\x00") {
		if key, ours := strings.CutPrefix(name, XattrPrefix); ours {
			all = append(all, key)
		}
	}
	return all
}

// valid makes a name valid UTF-8: protobuf refuses a whole message with one name that is not.
func valid(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// cachedNamer remembers names for one request: each look-up reads files.
type cachedNamer struct {
	Namer
	known map[[2]uint32][2]string
}

// Names returns the names of a user and a group.
func (c cachedNamer) Names(uid, gid uint32) (user, group string) {
	names, found := c.known[[2]uint32{uid, gid}]
	if !found {
		names[0], names[1] = c.Namer.Names(uid, gid)
		c.known[[2]uint32{uid, gid}] = names
	}
	return names[0], names[1]
}

// readXattr calls read with a buffer that is large enough, and returns what it read. If the
// attribute grows meanwhile, it tries again.
func readXattr(read func([]byte) (int, error)) []byte {
	for {
		n, err := read(nil)
		if err != nil || n == 0 {
			return nil
		}
		buf := make([]byte, n)
		n, err = read(buf)
		if errors.Is(err, unix.ERANGE) {
			continue
		}
		if err != nil {
			return nil
		}
		return buf[:n]
	}
}
