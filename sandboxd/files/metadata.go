package files

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/filesystem"
)

const (
	metadataHeader = "X-Metadata-"
	// maxMetadata bounds the names, as they are stored, and values of one file together,
	// and maxKey one key: E2B's limits, of ext4's block and Linux's names.
	maxMetadata = 4096
	maxKey      = 255 - len(filesystem.XattrPrefix)
)

// metadataOf returns the metadata in the headers of a request. It fails if the metadata
// could not be stored, before any file is written.
func metadataOf(header http.Header) (map[string]string, error) {
	var all map[string]string
	total := 0
	for name, values := range header {
		key, found := strings.CutPrefix(name, metadataHeader)
		if !found || key == "" {
			continue
		}
		key = strings.ToLower(key)
		switch {
		case len(key) > maxKey:
			return nil, badRequest(fmt.Sprintf("invalid metadata: the key '%s' has more than %d bytes", key, maxKey))
		case !printable(key):
			return nil, badRequest(fmt.Sprintf("invalid metadata: the key %q is not printable ASCII", key))
		case !printable(values[0]):
			return nil, badRequest(fmt.Sprintf("invalid metadata: the value of '%s' is not printable ASCII", key))
		}
		total += len(filesystem.XattrPrefix) + len(key) + len(values[0])
		if all == nil {
			all = map[string]string{}
		}
		all[key] = values[0]
	}
	if total > maxMetadata {
		return nil, badRequest(fmt.Sprintf("invalid metadata: %d bytes with the keys, %d are allowed", total, maxMetadata))
	}
	return all, nil
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

// setMetadata replaces a file's metadata, and returns the metadata that is stored: none if
// the file system stores none. Call it with the user's rights.
func setMetadata(f *os.File, metadata map[string]string) (map[string]string, error) {
	fd := int(f.Fd())
	for _, key := range filesystem.MetadataKeys(fd) {
		if _, stays := metadata[key]; stays {
			continue
		}
		if err := unix.Fremovexattr(fd, filesystem.XattrPrefix+key); err != nil && !errors.Is(err, unix.ENODATA) {
			return nil, fmt.Errorf("removing the metadata '%s' of %s: %w", key, f.Name(), err)
		}
	}
	for key, value := range metadata {
		err := unix.Fsetxattr(fd, filesystem.XattrPrefix+key, []byte(value), 0)
		switch {
		case errors.Is(err, unix.ENOTSUP):
			return nil, nil
		case errors.Is(err, unix.E2BIG), errors.Is(err, unix.ERANGE), errors.Is(err, unix.ENOSPC) && hasRoom(fd):
			return nil, badRequest(fmt.Sprintf("the metadata '%s' does not fit beside what else the file system stores of the file: %s", key, err))
		case err != nil:
			return nil, fmt.Errorf("storing the metadata '%s' of %s: %w", key, f.Name(), err)
		}
	}
	return metadata, nil
}

// hasRoom reports whether a file system has space left. A full file system refuses attributes
// with the same error as one in which the attributes of this file take too much room.
func hasRoom(fd int) bool {
	var stat unix.Statfs_t
	return unix.Fstatfs(fd, &stat) == nil && (stat.Bavail > 0 || stat.Blocks == 0)
}
