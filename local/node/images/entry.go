package images

import (
	"fmt"
	"io"
	"os"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"
)

// maxUserFile bounds what is read of an image's list of users.
const maxUserFile = 1 << 20

// Entry is an OCI image as the node runs it: its user's numbers are looked up in the image.
func (pulled *Image) Entry() (Entry, error) {
	config := pulled.Config
	image := Entry{
		Command: config.Entrypoint, Args: config.Cmd, Env: map[string]string{}, WorkingDir: config.WorkingDir,
		Digest: pulled.Digest, Root: pulled.Root,
	}
	for _, variable := range config.Env {
		name, value, _ := strings.Cut(variable, "=")
		image.Env[name] = value
	}
	passwd, closePasswd := fileOf(pulled.Root, "/etc/passwd")
	defer closePasswd()
	group, closeGroup := fileOf(pulled.Root, "/etc/group")
	defer closeGroup()
	who, err := user.GetExecUser(config.User, &user.ExecUser{Home: "/"}, passwd, group)
	if err != nil {
		return Entry{}, fmt.Errorf("its user %q: %w", config.User, err)
	}
	image.User, image.Home = fmt.Sprintf("%d:%d", who.Uid, who.Gid), who.Home
	return image, nil
}

// fileOf opens a file of an image, whose links are followed as from inside; nil if there is
// none.
func fileOf(root, path string) (io.Reader, func()) {
	inside, err := securejoin.SecureJoin(root, path)
	if err != nil {
		return nil, func() {}
	}
	f, err := os.OpenFile(inside, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0) // a FIFO would wait for a writer
	if err != nil {
		return nil, func() {}
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, func() {}
	}
	return io.LimitReader(f, maxUserFile), func() { _ = f.Close() }
}
