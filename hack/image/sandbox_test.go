package main

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// wantSandbox checks what every base sandbox says of itself.
func wantSandbox(t *testing.T, config *v1.ConfigFile) {
	t.Helper()
	c := config.Config
	if !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/sandboxd"}) || c.Cmd != nil || c.User != "0:0" || c.Healthcheck != nil {
		t.Errorf("it runs %v %v as %q with the probe %v", c.Entrypoint, c.Cmd, c.User, c.Healthcheck)
	}
	if _, exposed := c.ExposedPorts["49983/tcp"]; !exposed || len(c.ExposedPorts) != 1 {
		t.Errorf("it exposes %v", c.ExposedPorts)
	}
	if c.Labels["org.opencontainers.image.title"] != "sandlane-base" || c.Labels["org.opencontainers.image.licenses"] == "" {
		t.Errorf("labels %v", c.Labels)
	}
}

// started runs the sandboxd of an unpacked image, inside of it if this test is
// root, and returns its address.
func started(t *testing.T, root string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	const agent = "/usr/local/bin/sandboxd"
	cmd := exec.CommandContext(ctx, agent, "-open", "-address", "127.0.0.1:0")
	cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{searchPath}, "/", &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Chroot = root
	} else {
		cmd.Path = filepath.Join(root, agent)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stderr).ReadString('\n')
	at := regexp.MustCompile(`listens on (\S+)`).FindStringSubmatch(line)
	if at == nil {
		t.Fatalf("sandboxd said %q, %v", line, err)
	}
	return "http://" + at[1]
}

// wantAnswers checks that sandboxd answers, and as root that it acts as the user
// of the image's own files.
func wantAnswers(t *testing.T, root string, uid, gid int) {
	t.Helper()
	url := started(t, root)
	ask := func(method, path string, body io.Reader, want int) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/octet-stream")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if text, _ := io.ReadAll(res.Body); res.StatusCode != want {
			t.Errorf("%s %s: %d %s, want %d", method, path, res.StatusCode, text, want)
		}
	}
	ask("GET", "/health", nil, http.StatusNoContent)
	if os.Geteuid() != 0 {
		t.Log("not root: sandboxd ran outside of its image, where it can act for nobody else")
		return
	}
	for _, path := range []string{"note.txt", "/tmp/note.txt"} {
		ask("POST", "/files?username=user&path="+path, strings.NewReader("hi"), http.StatusOK)
	}
	for _, path := range []string{"home/user/note.txt", "tmp/note.txt"} {
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil {
			t.Error(err)
			continue
		}
		if stat := info.Sys().(*syscall.Stat_t); int(stat.Uid) != uid || int(stat.Gid) != gid {
			t.Errorf("/%s belongs to %d:%d, want %d:%d", path, stat.Uid, stat.Gid, uid, gid)
		}
	}
	// A login shell starts in the home, so it must be the user's and open to it.
	if info, err := os.Stat(filepath.Join(root, "home/user")); err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != uid || info.Mode().Perm() != 0o755 {
		t.Errorf("/home/user: %v, %v", info, err)
	}
}

func TestBaseSandbox(t *testing.T) {
	registry := newRegistry(t)
	makeImages(t, "-out", t.TempDir(), "-push", registry, "-images", "sandlane-base", "-tag", "t")
	image := pulled(t, registry+"/sandlane-base:t")
	wantSandbox(t, configOf(t, image))
	root, files := unpacked(t, image)
	for _, path := range []string{trustFile, "root", "home/user", "run", "var/tmp", "etc/nsswitch.conf"} {
		if files[path] == nil {
			t.Errorf("there is no /%s", path)
		}
	}
	for path, h := range files {
		if h.ModTime.Unix() != 0 || h.Uname != "" || h.Gname != "" {
			t.Errorf("/%s is of %s, by %q:%q", path, h.ModTime, h.Uname, h.Gname)
		}
	}
	wantAnswers(t, root, 1000, 1000)
}

// The same sources elsewhere make the same image.
func TestReproducible(t *testing.T) {
	elsewhere := t.TempDir()
	for _, folder := range []string{"cmd/sandboxd", "sandboxd"} {
		if err := os.CopyFS(filepath.Join(elsewhere, folder), os.DirFS(filepath.Join(repository, folder))); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		raw, err := os.ReadFile(filepath.Join(repository, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(elsewhere, file), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	registry := newRegistry(t)
	one, two := t.TempDir(), t.TempDir()
	args := []string{"-images", "sandlane-base", "-tag", "t", "-push"}
	makeImages(t, append([]string{"-out", one}, append(args, registry+"/same")...)...)
	first := digestOf(t, pulled(t, registry+"/same/sandlane-base:t"))
	makeImages(t, append([]string{"-root", elsewhere, "-out", two}, append(args, registry+"/same")...)...)
	if second := digestOf(t, pulled(t, registry+"/same/sandlane-base:t")); first != second {
		t.Errorf("%s, and from another folder %s", first, second)
	}
	file := "sandlane-base-linux-" + runtime.GOARCH + ".tar"
	a, errA := os.ReadFile(filepath.Join(one, file))
	b, errB := os.ReadFile(filepath.Join(two, file))
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("the tarballs differ: %v, %v", errA, errB)
	}
	// And the time is what was asked for, if something was.
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	makeImages(t, append([]string{"-out", one}, append(args, registry+"/later")...)...)
	image := pulled(t, registry+"/later/sandlane-base:t")
	if at := configOf(t, image).Created; at.Unix() != 1700000000 || digestOf(t, image) == first {
		t.Errorf("with SOURCE_DATE_EPOCH the image is of %s", at)
	}
}

func TestPlatforms(t *testing.T) {
	registry, out := newRegistry(t), t.TempDir()
	makeImages(t, "-out", out, "-push", registry, "-images", "sandlane-base", "-tag", "t", "-platforms", "linux/amd64,linux/arm64")
	tag, err := name.NewTag(registry + "/sandlane-base:t")
	if err != nil {
		t.Fatal(err)
	}
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		if _, err := os.Stat(filepath.Join(out, "sandlane-base-linux-"+arch+".tar")); err != nil {
			t.Error(err)
		}
		image, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		if got := configOf(t, image).Architecture; got != arch {
			t.Errorf("the image for %s says %s", arch, got)
		}
		root, _ := unpacked(t, image)
		binary, err := elf.Open(filepath.Join(root, "usr/local/bin/sandboxd"))
		if err != nil {
			t.Fatal(err)
		}
		if binary.Machine != machine {
			t.Errorf("sandboxd for %s is for %s", arch, binary.Machine)
		}
		for _, p := range binary.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("sandboxd for %s is not static", arch)
			}
		}
		_ = binary.Close()
	}
}
