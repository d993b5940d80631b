package sudo

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/process"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// peer is the user of the process at the other end of a connection.
type peer struct {
	name     string
	uid, gid uint32
}

// command builds the command of a request, without streams.
func (s *Server) command(r request, client peer) (*exec.Cmd, error) {
	target, err := s.target(r.User)
	if err != nil {
		return nil, err
	}
	dir := r.Dir
	if r.Login {
		dir = target.Home
	}
	if !enterable(target, dir) {
		dir = "/" // the target user may not enter dir, so that relative paths would fail anyway
	}
	args := []string(r.Command)
	path, name := "", ""
	switch {
	case r.Login:
		path, name = target.Shell, "-"+filepath.Base(target.Shell)
	case r.Shell:
		if path = variables(r.Env)["SHELL"]; path == "" {
			path = target.Shell
		}
		name = path
	case len(args) == 0:
		return nil, errors.New("there is no command to run")
	default:
		if path, err = process.LookPath(args[0], dir, s.options.Path); err != nil {
			return nil, fmt.Errorf("%s: command not found", args[0])
		}
		name, args = args[0], args[1:]
	}
	if (r.Login || r.Shell) && len(args) > 0 {
		args = []string{"-c", escape(args)}
	}
	cmd := &exec.Cmd{
		Path:        path,
		Args:        append([]string{name}, args...),
		Dir:         dir,
		Env:         environment(r, target, client, strings.Join(append([]string{path}, args...), " "), s.options.Path),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if target.UID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: target.UID, Gid: target.GID, Groups: target.Groups}
	}
	return cmd, nil
}

// target finds the user of -u: a name, or # and a number.
func (s *Server) target(name string) (users.User, error) {
	if number, ok := strings.CutPrefix(name, "#"); ok {
		uid, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return users.User{}, fmt.Errorf("unknown user %s", name)
		}
		name, _ = s.options.Users.Names(uint32(uid), 0)
	}
	if name == "" { // the default user, to Named
		return users.User{}, errors.New("there is no user to run as")
	}
	u, err := s.options.Users.Named(name)
	if err != nil {
		return u, fmt.Errorf("unknown user %s", name)
	}
	return u, nil
}

// enterable reports whether a user may have a folder as its working directory.
func enterable(u users.User, dir string) bool {
	return filepath.IsAbs(dir) && u.Act(func() error {
		var info unix.Stat_t
		return unix.Stat(dir+"/.", &info)
	}) == nil
}

// escape makes one shell line of a command. Like sudo it does not escape $.
func escape(args []string) string {
	var line strings.Builder
	for i, arg := range args {
		if i > 0 {
			line.WriteByte(' ')
		}
		for _, c := range []byte(arg) {
			switch {
			case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("_-$", c) >= 0, c >= 0x80:
			default:
				line.WriteByte('\\')
			}
			line.WriteByte(c)
		}
	}
	return line.String()
}
