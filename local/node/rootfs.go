package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandlane/sandlane/local/node/initspec"
)

// imageDir is where a container finds its image's program.
const imageDir = "/image"

// commandsDir has commands that containers find before the machine's own: a sudo of the
// machine's can do nothing there. It is the first folder of PATH, and login shells, as
// which SDKs run commands, begin with the machine's /etc/profile.
const commandsDir = imageDir + "/bin"

// profileScript adds commandsDir to the PATH that the machine's /etc/profile sets.
const profileScript = `case ":$PATH:" in *:` + commandsDir + `:*) ;; *) PATH="` + commandsDir + `:$PATH" ;; esac
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

// ownFolders are a container's own, beside its root: mounts of folders on the disk.
var ownFolders = []string{"/home", "/root", "/var", "/tmp", "/run"}

// layerVariable tells sandboxd of ownFolders, which it keeps in checkpoints.
const layerVariable = "SANDBOXD_LAYER"

var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// prepareRoot makes what the roots of all containers share: a copy of the
// chosen parts of /etc, and the list of mounts.
func (rt *podRuntime) prepareRoot() error {
	etc := filepath.Join(rt.dir, "etc")
	if err := os.RemoveAll(etc); err != nil {
		return fmt.Errorf("remove the old /etc: %w", err)
	}
	for _, part := range etcParts {
		if err := copyTree(filepath.Join("/etc", part), filepath.Join(etc, part)); err != nil {
			return fmt.Errorf("copy /etc/%s: %w", part, err)
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
		"resolv.conf":           "# pods of the local node have no internet, and so no name servers\n",
		"profile.d/sandlane.sh": profileScript,
	} {
		if err := writeNew(filepath.Join(etc, name), text); err != nil {
			return fmt.Errorf("make /etc/%s: %w", name, err)
		}
	}
	rt.links = map[string]string{}
	// Many machines have python3 alone, and programs written for E2B call python.
	if python3 := seenOnPath("python3"); python3 != "" && seenOnPath("python") == "" {
		rt.links[commandsDir+"/python"] = python3
	}
	for _, dir := range visible {
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Errorf("look at %s: %w", dir, err)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(dir)
			if err != nil {
				return fmt.Errorf("look at %s: %w", dir, err)
			}
			rt.links[dir] = target
		default:
			rt.binds = append(rt.binds, initspec.Bind{Source: dir, Target: dir, ReadOnly: true})
		}
	}
	rt.binds = append(rt.binds, initspec.Bind{Source: etc, Target: "/etc", ReadOnly: true})
	for _, dev := range devices {
		rt.binds = append(rt.binds, initspec.Bind{Source: "/dev/" + dev, Target: "/dev/" + dev, Device: true})
	}
	rt.masks = rt.secrets()
	return nil
}

// seenOnPath returns where containers find a program of the machine, or nothing.
func seenOnPath(name string) string {
	for dir := range strings.SplitSeq(defaultPath, ":") {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// secrets are folders that must not be seen although they may lie in a
// visible one.
func (rt *podRuntime) secrets() (masks []string) {
	all := []string{rt.opts.StateDir, rt.opts.HelperDir, "/usr/local/etc"}
	if rt.opts.Kubeconfig != "" {
		all = append(all, filepath.Dir(rt.opts.Kubeconfig))
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

// containerRoot makes the folders of one run of a container below dir and
// describes its root. It may change the working directory's owner.
func (rt *podRuntime) containerRoot(dir string, addr netip.Addr, spec *initspec.Spec, s processSpec) (*initspec.Root, error) {
	root := &initspec.Root{
		Dir: filepath.Join(dir, "root"), Hostname: s.podName, Links: map[string]string{}, Masks: rt.masks,
		Dirs: []string{"/proc", "/dev", "/mnt", "/opt", "/srv", commandsDir},
	}
	for link, target := range rt.links {
		root.Links[link] = target
	}
	root.Binds = append(root.Binds, rt.binds...)
	for name, text := range map[string]string{
		"hostname": s.podName + "\n",
		"hosts":    fmt.Sprintf("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n%s\t%s\n", addr, s.podName),
	} {
		if err := writeNew(filepath.Join(dir, "etc", name), text); err != nil {
			return nil, err
		}
		root.Binds = append(root.Binds, initspec.Bind{Source: filepath.Join(dir, "etc", name), Target: "/etc/" + name, ReadOnly: true})
	}
	for _, d := range []struct {
		path string
		mode fs.FileMode
		own  int
	}{
		{"root", 0o755, 0}, {"fs/home", 0o755, 0}, {"fs/home/user", 0o755, 1000}, {"fs/root", 0o700, 0},
		{"fs/tmp", 0o777 | fs.ModeSticky, 0}, {"fs/run", 0o755, 0}, {"fs/var", 0o755, 0}, {"fs/var/cache", 0o755, 0},
		{"fs/var/lib", 0o755, 0}, {"fs/var/log", 0o755, 0}, {"fs/var/tmp", 0o777 | fs.ModeSticky, 0},
	} {
		path := filepath.Join(dir, d.path)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, d.mode), os.Lchown(path, d.own, d.own)); err != nil {
			return nil, fmt.Errorf("make the container's folders: %w", err)
		}
	}
	if err := os.Symlink("/run", filepath.Join(dir, "fs/var/run")); err != nil {
		return nil, fmt.Errorf("make the container's folders: %w", err)
	}
	for _, path := range ownFolders {
		root.Binds = append(root.Binds, initspec.Bind{Source: filepath.Join(dir, "fs", path), Target: path})
	}
	if _, file := program(s.image, true); file != "" {
		target := filepath.Join(imageDir, filepath.Base(file))
		root.Binds = append(root.Binds, initspec.Bind{Source: file, Target: target, ReadOnly: true})
		for _, alias := range s.image.Aliases {
			root.Links[filepath.Join(commandsDir, alias)] = target
		}
	}
	root.Binds = append(root.Binds, s.mounts...)
	return root, nil
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
