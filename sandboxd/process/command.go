package process

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/processpb"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// sdkShell is the shell that every SDK asks for. In an image without it anyShell is used,
// which takes the same flags.
const sdkShell, anyShell = "/bin/bash", "/bin/sh"

// command builds the command of a request, without streams. Its environment has the
// variables of the image, the user, the sandbox and the request, of which the later ones win,
// and no others of sandboxd's own.
func command(config *processpb.ProcessConfig, user users.User, caller Caller) (*exec.Cmd, error) {
	dir, err := user.Resolve(config.GetCwd(), caller.Workdir())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		if config.GetCwd() != "" {
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("cwd '%s' does not exist", dir))
		}
		dir = "/"
	}
	all := map[string]string{}
	maps.Copy(all, caller.ImageEnv())
	all["HOME"], all["USER"], all["LOGNAME"] = user.Home, user.Name, user.Name
	maps.Copy(all, caller.Env())
	maps.Copy(all, config.GetEnvs())
	path, err := LookPath(config.GetCmd(), dir, all["PATH"])
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("error starting process '%s': %w", config.GetCmd(), err))
	}
	cmd := &exec.Cmd{
		Path:        path,
		Args:        append([]string{config.GetCmd()}, config.GetArgs()...),
		Dir:         dir,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		cmd.Env = append(cmd.Env, name+"="+all[name])
	}
	if user.UID != caller.Own().UID {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user.UID, Gid: user.GID, Groups: user.Groups}
	}
	return cmd, nil
}

// LookPath finds a program as the new process would: with the process's directory and PATH,
// not with sandboxd's.
func LookPath(name, dir, path string) (string, error) {
	if name == "" {
		return "", errors.New("no command")
	}
	if strings.Contains(name, "/") {
		if name == sdkShell {
			if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
				name = anyShell
			}
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil
	}
	for _, folder := range filepath.SplitList(path) {
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(dir, folder)
		}
		file := filepath.Join(folder, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("%w in PATH", exec.ErrNotFound)
}
