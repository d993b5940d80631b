// Package rootfs describes the root file systems of the local node's containers: of parts of this
// machine, or of an OCI image. podinit makes them of the description. Prepare makes what all of them
// share, Machine.Root the folders of one run of a container. It mounts nothing; packages process and
// node call it.
package rootfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandlane/sandlane/local/node/environment"
	"github.com/sandlane/sandlane/local/node/images"
	"github.com/sandlane/sandlane/local/node/initspec"
)

// imageDir is where a container finds its image's program.
const imageDir = "/image"

// CommandsDir has commands that containers find before the machine's own: a sudo of the
// machine's can do nothing there. It is the first folder of PATH, and login shells, as
// which SDKs run commands, begin with the machine's /etc/profile.
const CommandsDir = imageDir + "/bin"

// profileScript adds CommandsDir to the PATH that the machine's /etc/profile sets.
const profileScript = `case ":$PATH:" in *:` + CommandsDir + `:*) ;; *) PATH="` + CommandsDir + `:$PATH" ;; esac
`

// visible are the folders of the machine that containers see, read-only.
var visible = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// etcParts are the parts of /etc that programs need and that hold no secret.
var etcParts = []string{
	"alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts", "gai.conf",
	"host.conf", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime", "magic",
	"magic.mime", "mime.types", "networks", "nsswitch.conf", "os-release", "perl", "pki/ca-trust/extracted",
	"pki/tls/certs", "profile", "profile.d", "protocols", "python3", "python3.11", "python3.12", "python3.13", "rpc",
	"services", "shells", "skel", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", "vim", "xml",
}

// OwnFolders are a container's own, beside its root: mounts of folders on the disk.
var OwnFolders = []string{"/home", "/root", "/var", "/tmp", "/run"}

// LayerVariable tells sandboxd of OwnFolders, which it keeps in checkpoints.
const LayerVariable = "SANDBOXD_LAYER"

// resolvConf is the file in /etc with the name servers, and noServers its text without any.
const (
	resolvConf = "resolv.conf"
	noServers  = "# pods of the local node have no internet, and so no name servers\n"
)

var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// Options of Prepare.
type Options struct {
	// Dir is the node's folder.
	Dir string
	// StateDir, HelperDir and Kubeconfig are hidden from containers.
	StateDir, HelperDir, Kubeconfig string
	// Groups are where containers see their control groups.
	Groups []string
}

// Machine is what the roots of all containers share. It is not changed any more.
type Machine struct {
	dir   string
	masks []string
	binds []initspec.Bind
	links map[string]string
}

// Container is what the root of one run of a container depends on.
type Container struct {
	PodName string
	Addr    netip.Addr
	Image   images.Entry
	Mounts  []initspec.Bind // volumes
	// Resolv is its /etc/resolv.conf; empty: it has no name servers.
	Resolv string
	// ReadOnly: it can write to its volumes alone.
	ReadOnly bool
}

// Prepare makes what the roots of all containers share: a copy of the
// chosen parts of /etc, and the list of mounts.
func Prepare(o Options) (*Machine, error) {
	m := &Machine{dir: o.Dir, links: map[string]string{}}
	etc := filepath.Join(m.dir, "etc")
	if err := os.RemoveAll(etc); err != nil {
		return nil, fmt.Errorf("remove the old /etc: %w", err)
	}
	for _, part := range etcParts {
		if err := copyTree(filepath.Join("/etc", part), filepath.Join(etc, part)); err != nil {
			return nil, fmt.Errorf("copy /etc/%s: %w", part, err)
		}
	}
	shell := "/bin/sh"
	if _, err := os.Stat("/bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	for name, text := range map[string]string{
		"passwd":                "root:x:0:0:root:/root:" + shell + "\nuser:x:1000:1000:user:/home/user:" + shell + "\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":                 "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n",
		"hosts":                 "",
		"hostname":              "",
		resolvConf:              noServers,
		"profile.d/sandlane.sh": profileScript,
	} {
		if err := writeNew(filepath.Join(etc, name), text); err != nil {
			return nil, fmt.Errorf("make /etc/%s: %w", name, err)
		}
	}
	// Many machines have python3 alone, and programs written for E2B call python.
	if python3 := SeenOnPath("python3"); python3 != "" && SeenOnPath("python") == "" {
		m.links[CommandsDir+"/python"] = python3
	}
	for _, dir := range visible {
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("look at %s: %w", dir, err)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(dir)
			if err != nil {
				return nil, fmt.Errorf("look at %s: %w", dir, err)
			}
			m.links[dir] = target
		default:
			m.binds = append(m.binds, initspec.Bind{Source: dir, Target: dir, ReadOnly: true})
		}
	}
	m.binds = append(m.binds, initspec.Bind{Source: etc, Target: "/etc", ReadOnly: true})
	for _, dev := range devices {
		m.binds = append(m.binds, initspec.Bind{Source: "/dev/" + dev, Target: "/dev/" + dev, Device: true})
	}
	m.masks = secrets(o)
	if err := os.MkdirAll(m.root(), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of all roots: %w", err)
	}
	for _, dir := range append([]string{"/proc", "/dev"}, o.Groups...) {
		if err := os.MkdirAll(m.mountPoints(dir), 0o755); err != nil {
			return nil, fmt.Errorf("make the places of mounts: %w", err)
		}
	}
	for _, name := range []string{"hosts", "hostname", resolvConf} {
		if err := writeNew(m.mountPoints("etc", name), ""); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// SeenOnPath returns where containers with isolation find a program of the machine, which is
// also where it lies on the machine; nothing if they see none.
func SeenOnPath(name string) string {
	for dir := range strings.SplitSeq(environment.DefaultPath, ":") {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// secrets are folders that must not be seen although they may lie in a
// visible one.
func secrets(o Options) (masks []string) {
	all := []string{o.StateDir, o.HelperDir, "/usr/local/etc"}
	if o.Kubeconfig != "" {
		all = append(all, filepath.Dir(o.Kubeconfig))
	}
	if home, err := os.UserHomeDir(); err == nil {
		all = append(all, home)
	}
	for _, dir := range all {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		if strings.HasPrefix(dir, "/usr/") {
			masks = append(masks, dir)
		}
	}
	return masks
}

// root is an empty folder, on which each container's root is mounted.
func (m *Machine) root() string { return filepath.Join(m.dir, "root") }

// mountPoints is a place of a mount that images may lack: a container need not make it, on the disk,
// for itself.
func (m *Machine) mountPoints(path ...string) string {
	return filepath.Join(append([]string{m.dir, "mountpoints"}, path...)...)
}

// Root makes the folders of one run of a container below dir and describes its root.
func (m *Machine) Root(dir string, c Container) (*initspec.Root, error) {
	if c.Image.Root != "" {
		return m.imageRoot(dir, c)
	}
	return m.machineRoot(dir, c)
}

// machineRoot is the root of a container that sees this machine's programs.
func (m *Machine) machineRoot(dir string, c Container) (*initspec.Root, error) {
	root := &initspec.Root{
		Dir: m.root(), Hostname: c.PodName, Links: map[string]string{}, Masks: m.masks, ReadOnly: c.ReadOnly,
		Dirs: []string{"/proc", "/dev", "/mnt", "/opt", "/srv", CommandsDir},
	}
	for link, target := range m.links {
		root.Links[link] = target
	}
	root.Binds = append(root.Binds, m.binds...)
	addNames(root, c)
	if c.ReadOnly {
		root.Dirs = append(root.Dirs, OwnFolders...)
	} else if err := addOwn(root, dir); err != nil {
		return nil, err
	}
	if _, file := Program(c.Image, true); file != "" {
		target := filepath.Join(imageDir, filepath.Base(file))
		root.Binds = append(root.Binds, initspec.Bind{Source: file, Target: target, ReadOnly: true})
		for _, alias := range c.Image.Aliases {
			root.Links[filepath.Join(CommandsDir, alias)] = target
		}
	}
	for inside, folder := range c.Image.Folders {
		root.Binds = append(root.Binds, initspec.Bind{Source: folder, Target: inside, ReadOnly: true})
	}
	root.Binds = append(root.Binds, c.Mounts...)
	return root, nil
}

// addOwn makes OwnFolders, which the container can write to, and adds them to its root.
func addOwn(root *initspec.Root, dir string) error {
	for _, d := range []struct {
		path string
		mode fs.FileMode
		own  int
	}{
		{"fs/home", 0o755, 0}, {"fs/home/user", 0o755, 1000}, {"fs/root", 0o700, 0},
		{"fs/tmp", 0o777 | fs.ModeSticky, 0}, {"fs/run", 0o755, 0}, {"fs/var", 0o755, 0}, {"fs/var/cache", 0o755, 0},
		{"fs/var/lib", 0o755, 0}, {"fs/var/log", 0o755, 0}, {"fs/var/tmp", 0o777 | fs.ModeSticky, 0},
	} {
		path := filepath.Join(dir, d.path)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, d.mode), os.Lchown(path, d.own, d.own)); err != nil {
			return fmt.Errorf("make the container's folders: %w", err)
		}
	}
	if err := os.Symlink("/run", filepath.Join(dir, "fs/var/run")); err != nil {
		return fmt.Errorf("make the container's folders: %w", err)
	}
	for _, path := range OwnFolders {
		root.Binds = append(root.Binds, initspec.Bind{Source: filepath.Join(dir, "fs", path), Target: path})
	}
	return nil
}

// imageRoot is the root of an OCI image: its files, and what the container changes.
func (m *Machine) imageRoot(dir string, c Container) (*initspec.Root, error) {
	root := &initspec.Root{
		Dir: m.root(), Hostname: c.PodName, ReadOnly: c.ReadOnly,
		Lower: c.Image.Root, Upper: filepath.Join(dir, "upper"), Work: filepath.Join(dir, "work"), MountPoints: m.mountPoints(),
	}
	for _, path := range []string{root.Upper, root.Work} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, fmt.Errorf("make the container's folders: %w", err)
		}
	}
	for _, dev := range devices {
		root.Binds = append(root.Binds, initspec.Bind{Source: "/dev/" + dev, Target: "/dev/" + dev, Device: true})
	}
	c.Resolv = cmp.Or(c.Resolv, noServers)
	addNames(root, c)
	root.Binds = append(root.Binds, c.Mounts...)
	return root, nil
}

// addNames gives a root the files with its host's names.
func addNames(root *initspec.Root, c Container) {
	for _, file := range []struct{ name, content string }{
		{"hostname", c.PodName + "\n"},
		{"hosts", fmt.Sprintf("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n%s\t%s\n", c.Addr, c.PodName)},
		{resolvConf, c.Resolv},
	} {
		if file.content != "" {
			root.Binds = append(root.Binds, initspec.Bind{Content: file.content, Target: "/etc/" + file.name, ReadOnly: true})
		}
	}
}

func writeNew(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the container's folders: %w", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("make the container's files: %w", err)
	}
	return nil
}

// copyTree copies files, folders and links; what is not there or is readable
// by its owner alone is left out.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		info, err := d.Info()
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case info.Mode().Perm()&0o004 == 0 && !d.IsDir():
			return nil
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case info.Mode().IsRegular():
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(target, raw, info.Mode().Perm())
		}
		return nil
	})
}

// Program returns the command of a container, and the host's file to show
// inside if it is not in the part of the machine that containers see.
func Program(image images.Entry, full bool) (args []string, file string) {
	args = slices.Clone(image.Command)
	if !full || image.Root != "" || !filepath.IsAbs(args[0]) {
		return args, ""
	}
	for _, seen := range visible {
		if strings.HasPrefix(args[0], seen+"/") {
			return args, ""
		}
	}
	file = args[0]
	args[0] = filepath.Join(imageDir, filepath.Base(file))
	return args, file
}
