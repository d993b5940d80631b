package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// testTools are the programs that test sandboxes have besides sandboxd.
var testTools = []string{"bash", "cat", "chmod", "curl", "grep", "head", "id", "ls", "ln", "mkdir", "rm", "sleep", "stat", "stty", "tr", "tty"}

// testEnvoy is Envoy's binary with this machine's C library, for tests: users take
// Envoy's own image.
func (b *builder) testEnvoy(p v1.Platform) (v1.Image, error) {
	if b.envoy == "" {
		return nil, errors.New("-envoy must name Envoy's binary (`sandlane prepare` prints where it is)")
	}
	files, err := hostProgram(b.envoy, programs+"/envoy", p)
	if err != nil {
		return nil, err
	}
	files = append(rootFS(), files...)
	if _, err := os.Stat(b.module); err == nil { // none was built where there is no C compiler
		files = append(files, folder(path.Dir(moduleFolder), 0o755), folder(moduleFolder, 0o755), b.moduleFile())
	}
	return b.testImage(p, files, func(c *v1.Config) {
		c.Entrypoint = []string{"/" + programs + "/envoy"}
		c.User = serviceUser
	}, "sandlane-test-envoy")
}

// testBase is a base sandbox with bash and a few tools of this machine, sandboxd's
// sudo, and `webserver PORT`, which serves the folder that it is started in.
func (b *builder) testBase(ctx context.Context, p v1.Platform) (v1.Image, error) {
	agent, err := b.program(ctx, "cmd/sandboxd", p)
	if err != nil {
		return nil, err
	}
	server, err := b.program(ctx, "test/echo", p)
	if err != nil {
		return nil, err
	}
	passwd, group, user, err := addUser("root:x:0:0:root:/root:/bin/bash\n", "root:x:0:\n", "/bin/bash")
	if err != nil {
		return nil, err
	}
	entries := append(rootFS(),
		entry{path: programs + "/sandboxd", mode: 0o755, file: agent},
		entry{path: programs + "/sudo", mode: 0o755, file: agent},
		entry{path: programs + "/webserver", mode: 0o755, file: server},
		entry{path: "etc/passwd", mode: 0o644, text: passwd},
		entry{path: "etc/group", mode: 0o644, text: group},
		folder("home", 0o755),
		entry{path: user.home, mode: 0o755, folder: true, uid: user.uid, gid: user.gid},
	)
	for _, tool := range testTools {
		files, err := hostProgram("/bin/"+tool, "bin/"+tool, p)
		if err != nil {
			return nil, err
		}
		entries = append(entries, files...)
	}
	return b.testImage(p, entries, asSandbox, "sandlane-test-base")
}

// testProgram is one static program of the repository, named by its folder. The title
// is part of the image: two of one program have two digests.
func (b *builder) testProgram(ctx context.Context, p v1.Platform, dir, title string) (v1.Image, error) {
	binary, err := b.program(ctx, dir, p)
	if err != nil {
		return nil, err
	}
	name := path.Base(dir)
	return b.testImage(p, []entry{{path: name, mode: 0o755, file: binary}}, func(c *v1.Config) {
		c.Entrypoint = []string{"/" + name}
		c.User = serviceUser
	}, title)
}

func (b *builder) testImage(p v1.Platform, entries []entry, set func(*v1.Config), title string) (v1.Image, error) {
	layer, err := layerOf(unique(entries), b.created, types.OCILayer)
	if err != nil {
		return nil, err
	}
	return b.finish(scratch(), p, layer, func(c *v1.Config) {
		c.Env, c.WorkingDir = []string{searchPath}, "/"
		set(c)
	}, title, "For tests of Sandlane alone")
}

// unique keeps the first entry of each path: programs share libraries.
func unique(entries []entry) []entry {
	seen := map[string]bool{}
	var out []entry
	for _, e := range entries {
		if !seen[e.path] {
			seen[e.path] = true
			out = append(out, e)
		}
	}
	return out
}

// libraryFolders are where the loaders of distributions look.
var libraryFolders = []string{
	"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "usr/lib64", "lib", "usr/lib",
}

// hostProgram is a program of this machine as a file of an image, with the loader
// and the libraries that it needs where they are here.
func hostProgram(file, at string, p v1.Platform) ([]entry, error) {
	if p.Architecture != runtime.GOARCH {
		return nil, fmt.Errorf("images for tests are made of programs of this machine, which is %s", runtime.GOARCH)
	}
	out := []entry{{path: at, mode: 0o755, file: file}}
	needed := []string{file}
	for i := 0; i < len(needed); i++ {
		libraries, loader, err := linked(needed[i])
		if err != nil {
			return nil, fmt.Errorf("what %s is linked with: %w", needed[i], err)
		}
		if loader != "" {
			out = append(out, entry{path: strings.TrimPrefix(loader, "/"), mode: 0o755, file: loader})
		}
		for _, name := range libraries {
			found, err := library(name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if !slices.Contains(needed, found) {
				out = append(out, entry{path: strings.TrimPrefix(found, "/"), mode: 0o755, file: found})
				needed = append(needed, found)
			}
		}
	}
	return unique(out), nil
}

// linked returns the names of the libraries that a file needs, and its loader if it
// names one.
func linked(file string) (libraries []string, loader string, err error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	if section := f.Section(".interp"); section != nil {
		text, err := section.Data()
		if err != nil {
			return nil, "", err
		}
		loader = strings.TrimRight(string(text), "\x00")
	}
	libraries, err = f.ImportedLibraries()
	return libraries, loader, err
}

func library(name string) (string, error) {
	for _, dir := range libraryFolders {
		file := filepath.Join("/", dir, name)
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("there is no %s on this machine", name)
}
