package images

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Entry is what a container of an image runs, as an image table has it.
type Entry struct {
	// Command is the entry point; its first element is a file of this machine
	// or a program on the PATH inside.
	Command []string `json:"command"`
	// Env are variables that the container's own override.
	Env map[string]string `json:"env,omitempty"`
	// WorkingDir is where it runs unless the container says another; empty means /.
	WorkingDir string `json:"workingDir,omitempty"`
	// User is the user that it runs as unless the pod says another, as "uid" or "uid:gid" in
	// numbers; empty means root.
	User string `json:"user,omitempty"`
	// Aliases are more names of the program, as which commands find it in a root of its
	// own: a program may choose by its name what it does.
	Aliases []string `json:"aliases,omitempty"`
	// Folders are folders of this machine that containers of the image see, read-only, by
	// where they see them; only with isolation.
	Folders map[string]string `json:"folders,omitempty"`
	// Digest is "sha256:…", shown in the container's status.
	Digest string `json:"digest"`

	// Args are the arguments of Command that those of a container replace.
	Args []string `json:"-"`
	// Root is the folder of an OCI image's files; empty: the files are this machine's.
	Root string `json:"-"`
	// Home is the home of an OCI image's user; empty: not told.
	Home string `json:"-"`
}

// IDs returns the numbers of the image's user and group.
func (i Entry) IDs() (uid, gid int, err error) {
	if i.User == "" {
		return 0, 0, nil
	}
	user, group, both := strings.Cut(i.User, ":")
	id, err := strconv.ParseUint(user, 10, 31)
	if err == nil && both {
		var n uint64
		n, err = strconv.ParseUint(group, 10, 31)
		gid = int(n)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("the user %q of the image: want numbers, uid or uid:gid", i.User)
	}
	return int(id), gid, nil
}

// UnknownError says that an image is not in the table.
type UnknownError struct{ image string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("image %q is not in this node's image table", e.image)
}

// Lookup reads the table, which may change at any time, and finds image:
// name, name:tag (default latest) or name@digest.
func Lookup(table, image string) (Entry, error) {
	raw, err := os.ReadFile(table)
	if err != nil {
		return Entry{}, fmt.Errorf("read the image table: %w", err)
	}
	var all map[string]Entry
	if err := json.Unmarshal(raw, &all); err != nil {
		return Entry{}, fmt.Errorf("parse the image table: %w", err)
	}
	name, digest, _ := strings.Cut(image, "@")
	for key, entry := range all {
		if len(entry.Command) == 0 || withTag(key) != withTag(name) && digest == "" {
			continue
		}
		if digest == "" || digest == entry.Digest && withoutTag(key) == withoutTag(name) {
			return entry, nil
		}
	}
	return Entry{}, &UnknownError{image}
}

func withTag(name string) string {
	if withoutTag(name) == name {
		return name + ":latest"
	}
	return name
}

func withoutTag(name string) string {
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[:i]
	}
	return name
}

// ID is what the container status shows.
func ID(image string, entry Entry) string {
	name, _, _ := strings.Cut(image, "@")
	if entry.Digest == "" {
		return withTag(name)
	}
	return withoutTag(name) + "@" + entry.Digest
}
