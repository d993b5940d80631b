package main

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// pushBase puts an image on a registry that another is to be made on: of the
// kind that Docker makes unless oci.
func pushBase(t *testing.T, ref string, oci bool, entries []entry, set func(*v1.ConfigFile)) v1.Image {
	t.Helper()
	image, media := empty.Image, types.DockerLayer
	if oci {
		image, media = scratch(), types.OCILayer
	}
	layer, err := layerOf(entries, time.Unix(1000, 0), media)
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		t.Fatal(err)
	}
	config := configOf(t, image).DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	set(config)
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image); err != nil {
		t.Fatal(err)
	}
	return image
}

// On an image of the user's choice the sandbox has what that has, sandboxd, and
// the user beside those who are there.
func TestBaseSandboxOnAnImage(t *testing.T) {
	registry := newRegistry(t)
	for _, oci := range []bool{false, true} {
		base := pushBase(t, registry+"/tools:1", oci, []entry{
			folder("etc", 0o751), folder("home", 0o711), folder("usr", 0o755), folder("usr/bin", 0o755),
			{path: "usr/bin/bash", mode: 0o755, text: "#!"},
			{path: "usr/bin/tool", mode: 0o755, text: "kept"},
			{path: "etc/passwd", mode: 0o644, text: "root:x:0:0:root:/root:/bin/bash\nnode:x:1000:1000::/home/node:/bin/bash"},
			{path: "etc/group", mode: 0o644, text: "root:x:0:\nnode:x:1000:\nstaff:x:1001:node\n"},
		}, func(c *v1.ConfigFile) {
			c.Config = v1.Config{
				Env: []string{"PATH=/opt/bin:/usr/bin", "LANG=C.UTF-8"}, Cmd: []string{"node"}, Entrypoint: []string{"/entry"},
				User: "node", WorkingDir: "/work", Labels: map[string]string{"theirs": "stays"},
				ExposedPorts: map[string]struct{}{"80/tcp": {}}, Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "true"}},
			}
		})
		printed := makeImages(t, "-out", t.TempDir(), "-push", registry, "-images", "sandlane-base", "-tag", "t", "-base", registry+"/tools:1")
		if strings.Contains(printed, "bash") {
			t.Errorf("it misses bash, which is there:\n%s", printed)
		}
		image := pulled(t, registry+"/sandlane-base:t")
		config := configOf(t, image)
		wantSandbox(t, config)
		c := config.Config
		if c.WorkingDir != "/work" || strings.Join(c.Env, " ") != "PATH=/opt/bin:/usr/bin LANG=C.UTF-8 SANDBOXD_USER=node SANDBOXD_ENV=LANG" || c.Labels["theirs"] != "stays" {
			t.Errorf("not as it was: %+v", c)
		}
		if c.Labels["org.opencontainers.image.base.digest"] != digestOf(t, base) || c.Labels["org.opencontainers.image.base.name"] != registry+"/tools:1" {
			t.Errorf("made on %v", c.Labels)
		}
		manifest, err := image.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if len(manifest.Layers) != 2 || manifest.Layers[0].MediaType != manifest.Layers[1].MediaType {
			t.Errorf("layers %+v", manifest.Layers)
		}
		root, files := unpacked(t, image)
		if raw, err := os.ReadFile(filepath.Join(root, "usr/bin/tool")); err != nil || string(raw) != "kept" {
			t.Errorf("/usr/bin/tool: %q, %v", raw, err)
		}
		if files["etc"].Mode&0o777 != 0o751 || files["home"].Mode&0o777 != 0o711 || files["tmp"].Mode&0o777 != 0o777 {
			t.Error("the folders of the image did not stay as they were, or /tmp was not made")
		}
		passwd, _ := os.ReadFile(filepath.Join(root, "etc/passwd"))
		if !strings.HasSuffix(string(passwd), "node:x:1000:1000::/home/node:/bin/bash\nuser:x:1002:1002::/home/user:/bin/bash\n") {
			t.Errorf("passwd:\n%s", passwd)
		}
		wantAnswers(t, root, 1002, 1002)
	}
}

func TestBaseSandboxOnAnImageRefused(t *testing.T) {
	registry := newRegistry(t)
	for _, c := range []struct {
		base    string
		entries []entry
		set     func(*v1.ConfigFile)
		want    string
	}{
		{"other", nil, func(c *v1.ConfigFile) { c.Architecture = "riscv64" }, "is for linux/riscv64"},
		{"folder", []entry{folder("etc", 0o755), folder("etc/passwd", 0o755)}, func(*v1.ConfigFile) {}, "/etc/passwd: it is no plain file"},
		{"group", []entry{{path: "etc/passwd", text: "root:x:0:0::/root:/bin/sh\n"}, {path: "etc/group", text: "user:x:7:\n"}}, func(*v1.ConfigFile) {}, `there is a group "user"`},
		{"nosuch", nil, nil, "pull "},
		{"Not A Name", nil, nil, "the name of an image"},
	} {
		if c.set != nil {
			pushBase(t, registry+"/"+c.base, true, c.entries, c.set)
		}
		out := t.TempDir()
		err := run(t.Context(), []string{"-root", repository, "-out", out, "-images", "sandlane-base", "-base", registry + "/" + c.base}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.base, err, c.want)
		}
		if left, _ := os.ReadDir(out); len(left) > 0 {
			t.Errorf("%s: it left %v", c.base, left)
		}
	}
}

// An empty image gets root and the user, and a warning about bash.
func TestBaseSandboxOnNothing(t *testing.T) {
	registry := newRegistry(t)
	pushBase(t, registry+"/nothing:1", true, nil, func(*v1.ConfigFile) {})
	printed := makeImages(t, "-out", t.TempDir(), "-push", registry, "-images", "sandlane-base", "-tag", "t", "-base", registry+"/nothing:1")
	if !strings.Contains(printed, "note: "+registry+"/nothing:1 has no /bin/bash") {
		t.Errorf("printed:\n%s", printed)
	}
	root, _ := unpacked(t, pulled(t, registry+"/sandlane-base:t"))
	wantAnswers(t, root, 1000, 1000)
}

func TestAddUser(t *testing.T) {
	for _, c := range []struct{ name, passwd, group, wantPasswd, wantGroup, wantHome string }{
		{"none", "root:x:0:0::/root:/bin/sh\n", "root:x:0:\n",
			"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:SHELL\n", "root:x:0:\nuser:x:1000:\n", "home/user"},
		{"there already", "user:x:5:6::/work:/bin/zsh\n", "users:x:6:\n", "user:x:5:6::/work:/bin/zsh\n", "users:x:6:\n", "work"},
		{"a group has the number", "", "docker:x:1000:\n", "user:x:1001:1001::/home/user:SHELL\n", "docker:x:1000:\nuser:x:1001:\n", "home/user"},
		{"no end of line, comments", "# x\na:x:1000:1:::", "b:x:1:", "# x\na:x:1000:1:::\nuser:x:1001:1001::/home/user:SHELL\n", "b:x:1:\nuser:x:1001:\n", "home/user"},
	} {
		passwd, group, user, err := addUser(c.passwd, c.group, "SHELL")
		if err != nil || passwd != c.wantPasswd || group != c.wantGroup || user.home != c.wantHome {
			t.Errorf("%s:\n%s\n%s\n%+v, %v", c.name, passwd, group, user, err)
		}
	}
	if _, _, _, err := addUser("user:x:5:x::/work:/bin/zsh\n", "", ""); err == nil {
		t.Error("a group without a number was taken")
	}
}
