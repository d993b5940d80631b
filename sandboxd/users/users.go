// Package users finds the users of the sandbox: a Database looks them up in the files passwd
// and group, and User.Act runs a function with a user's rights to files. It reads the files
// itself, because a static binary cannot call the C library of an unknown image, and because
// os/user does not return the login shell.
//
// For commands package process switches users. Package access looks a request's user up, in
// the Database that package sandboxd gives it; packages process, filesystem and files act as
// that User.
package users

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrUnknown is wrapped by errors of Lookup for a name that does not exist.
var ErrUnknown = errors.New("unknown user")

// ErrNotPermitted is wrapped by errors of Lookup for a user that this process,
// which is not root, cannot become.
var ErrNotPermitted = errors.New("not permitted")

// User is one user of the sandbox.
type User struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []uint32 // supplementary groups, the primary one included
	Home   string
	Shell  string
	// AsRoot says that Act has root's rights, and that the user gets what is made. It is for the
	// process of package rootfiles alone, which has nothing that root in the sandbox has not.
	AsRoot bool `json:"-"`
}

// Database finds users. Its zero value reads /etc; its own user is the user of this process.
// It is safe for concurrent use. It reads the files at each call, since commands in the
// sandbox may add users.
type Database struct {
	// Dir holds passwd and group; empty means /etc.
	Dir string
	// Home replaces the own user's home; empty means the one in passwd.
	Home string
	// UID overrides os.Geteuid, for tests.
	UID func() int
}

func (d Database) dir() string {
	if d.Dir == "" {
		return "/etc"
	}
	return d.Dir
}

func (d Database) uid() int {
	if d.UID != nil {
		return d.UID()
	}
	return os.Geteuid()
}

// Privileged reports whether this process can act as other users than its own.
func (d Database) Privileged() bool { return d.uid() == 0 }

// Own returns the user that sandboxd runs as. Some clusters assign a user that has no line in
// passwd: its fields come from the environment.
func (d Database) Own() User {
	own := d.own()
	if d.Home != "" {
		own.Home = d.Home
	}
	return own
}

func (d Database) own() User {
	uid := uint32(d.uid())
	// If passwd cannot be read, the user is the same: the fields from it are replaced below.
	if u, found, _ := d.find(func(u User) bool { return u.UID == uid }); found {
		return u
	}
	home := os.Getenv("HOME")
	if !filepath.IsAbs(home) {
		home = "/"
	}
	gid := uint32(os.Getegid())
	return User{Name: strconv.Itoa(int(uid)), UID: uid, GID: gid, Groups: []uint32{gid}, Home: home, Shell: "/bin/sh"}
}

// Lookup returns a user by name. If sandboxd is not root, Lookup of another user than its own
// is an ErrNotPermitted. If passwd is there and cannot be read, the error is neither that nor
// an ErrUnknown: whether the user exists is not known.
func (d Database) Lookup(name string) (User, error) {
	if own := d.Own(); own.Name == name {
		return own, nil
	}
	u, found, err := d.find(func(u User) bool { return u.Name == name })
	switch {
	case err != nil:
		return User{}, fmt.Errorf("looking for user '%s': %w", name, err)
	case !found:
		return User{}, fmt.Errorf("invalid username: '%s': %w", name, ErrUnknown)
	}
	if !d.Privileged() && int(u.UID) != d.uid() {
		return User{}, fmt.Errorf("sandboxd runs unprivileged as '%s' and cannot act as '%s': %w", d.Own().Name, name, ErrNotPermitted)
	}
	return u, nil
}

// Name returns the name of a user ID, or the number when it has none.
func (d Database) Name(uid uint32) string {
	if u, found, _ := d.find(func(u User) bool { return u.UID == uid }); found {
		return u.Name
	}
	return strconv.FormatUint(uint64(uid), 10)
}

// GroupName returns the name of a group ID, or the number when it has none.
func (d Database) GroupName(gid uint32) string {
	id := strconv.FormatUint(uint64(gid), 10)
	groups, _ := d.records("group", 3)
	for _, f := range groups {
		if f[2] == id {
			return f[0]
		}
	}
	return id
}

func (d Database) find(is func(User) bool) (u User, found bool, err error) {
	lines, err := d.records("passwd", 7)
	if err != nil {
		return User{}, false, err
	}
	for _, f := range lines {
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err1 != nil || err2 != nil {
			continue
		}
		u := User{Name: f[0], UID: uint32(uid), GID: uint32(gid), Home: f[5], Shell: f[6]}
		if u.Home == "" {
			u.Home = "/"
		}
		if u.Shell == "" {
			u.Shell = "/bin/sh"
		}
		if is(u) {
			u.Groups = d.groupsOf(u)
			return u, true, nil
		}
	}
	return User{}, false, nil
}

// groupsOf returns the user's groups; the primary one alone if the file cannot be read.
func (d Database) groupsOf(u User) []uint32 {
	groups := []uint32{u.GID}
	lines, _ := d.records("group", 4)
	for _, f := range lines {
		gid, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil || uint32(gid) == u.GID {
			continue
		}
		for member := range strings.SplitSeq(f[3], ",") {
			if member == u.Name {
				groups = append(groups, uint32(gid))
			}
		}
	}
	return groups
}

// records returns the fields of the lines that have at least that many. A missing
// file has no lines: minimal images have none.
func (d Database) records(file string, fields int) ([][]string, error) {
	text, err := os.ReadFile(filepath.Join(d.dir(), file))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	var all [][]string
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimRight(line, "\r\n"), ":")
		if len(f) >= fields && !strings.HasPrefix(line, "#") {
			all = append(all, f)
		}
	}
	return all, nil
}
