package buildstep

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// firstUID is what the first user of most systems has.
const firstUID = 1000

// userName is what a user that AddUser adds may be called.
var userName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

// AddUser adds a user with a group of the same name and a home below home to passwd and group
// in the folder etc, unless there is one of that name.
func AddUser(etc, home, name string) error {
	passwd, err := table(filepath.Join(etc, "passwd"))
	if err != nil {
		return err
	}
	if passwd.has(name) {
		return nil
	}
	if !userName.MatchString(name) {
		return fmt.Errorf("%q is no name of a user", name)
	}
	group, err := table(filepath.Join(etc, "group"))
	if err != nil {
		return err
	}
	if len(passwd.lines) == 0 { // an image without users: root must keep its name
		passwd.lines = append(passwd.lines, "root:x:0:0:root:/root:/bin/sh")
	}
	id := firstUID
	for passwd.hasID(id) || group.hasID(id) {
		id++
	}
	gid := id
	if !group.has(name) {
		group.lines = append(group.lines, fmt.Sprintf("%s:x:%d:", name, id))
	} else if gid, err = group.idOf(name); err != nil {
		return err
	}
	dir := filepath.Join(home, name)
	passwd.lines = append(passwd.lines, fmt.Sprintf("%s:x:%d:%d::%s:%s", name, id, gid, dir, shell()))
	if err := errors.Join(group.write(), passwd.write()); err != nil { // the group first: a user without one is none
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chown(dir, id, gid)
}

func shell() string {
	if _, err := os.Stat("/bin/bash"); err == nil {
		return "/bin/bash"
	}
	return "/bin/sh"
}

// lines are those of passwd or group.
type lines struct {
	file  string
	lines []string
}

func table(file string) (*lines, error) {
	t := &lines{file: file}
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	for scanner := bufio.NewScanner(bytes.NewReader(content)); scanner.Scan(); {
		if line := scanner.Text(); line != "" {
			t.lines = append(t.lines, line)
		}
	}
	return t, nil
}

func (t *lines) has(name string) bool {
	_, err := t.idOf(name)
	return err == nil
}

// idOf returns the third field of the line with that name.
func (t *lines) idOf(name string) (int, error) {
	for _, line := range t.lines {
		if fields := strings.Split(line, ":"); len(fields) > 2 && fields[0] == name {
			return strconv.Atoi(fields[2])
		}
	}
	return 0, fmt.Errorf("there is no %s in %s", name, t.file)
}

func (t *lines) hasID(id int) bool {
	for _, line := range t.lines {
		if fields := strings.Split(line, ":"); len(fields) > 2 && fields[2] == strconv.Itoa(id) {
			return true
		}
	}
	return false
}

// write replaces the file in one step.
func (t *lines) write() error {
	if err := os.MkdirAll(filepath.Dir(t.file), 0o755); err != nil {
		return err
	}
	unfinished := t.file + ".new"
	if err := os.WriteFile(unfinished, []byte(strings.Join(t.lines, "\n")+"\n"), 0o644); err != nil { //nolint:gosec // all may read it
		return err
	}
	return os.Rename(unfinished, t.file)
}

// Owner returns the IDs of "user", "user:group" or numbers, by passwd and group in the folder
// etc. Without a group it is the user's own.
func Owner(etc, text string) (uid, gid int, err error) {
	name, groupName, grouped := strings.Cut(text, ":")
	passwd, err := table(filepath.Join(etc, "passwd"))
	if err != nil {
		return 0, 0, err
	}
	if uid, err = strconv.Atoi(name); err == nil {
		gid = uid
	} else if uid, err = passwd.idOf(name); err != nil {
		return 0, 0, err
	}
	for _, line := range passwd.lines {
		if fields := strings.Split(line, ":"); len(fields) > 3 && fields[2] == strconv.Itoa(uid) {
			if gid, err = strconv.Atoi(fields[3]); err != nil {
				return 0, 0, fmt.Errorf("the group of %s: %w", name, err)
			}
			break
		}
	}
	if !grouped {
		return uid, gid, nil
	}
	if gid, err = strconv.Atoi(groupName); err == nil {
		return uid, gid, nil
	}
	group, err := table(filepath.Join(etc, "group"))
	if err != nil {
		return 0, 0, err
	}
	gid, err = group.idOf(groupName)
	return uid, gid, err
}
