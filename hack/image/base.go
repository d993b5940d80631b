package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// ground is the image that a base sandbox is made on, and what of it matters.
type ground struct {
	image         v1.Image
	name, digest  string
	passwd, group string
	folders       map[string]bool // those there are, of those looked for
	bash          bool
	python        string // the newest Python 3 that it has, as "3.13"; "" is none
}

// pull gets an image from its registry and looks through its files.
func pull(ctx context.Context, from string, p v1.Platform, folders []string) (*ground, error) {
	ref, err := name.ParseReference(from)
	if err != nil {
		return nil, fmt.Errorf("the name of an image: %w", err)
	}
	image, err := remote.Image(ref, remote.WithContext(ctx), remote.WithPlatform(p), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", from, err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration of %s: %w", from, err)
	}
	// A name that stands for one image answers with it whatever was asked for.
	if config.OS != p.OS || config.Architecture != p.Architecture {
		return nil, fmt.Errorf("%s is for %s/%s", from, config.OS, config.Architecture)
	}
	digest, err := image.Digest()
	if err != nil {
		return nil, fmt.Errorf("the digest of %s: %w", from, err)
	}
	g := &ground{image: image, name: ref.Name(), digest: digest.String(), folders: map[string]bool{}}
	if err := g.readFiles(folders); err != nil {
		return nil, fmt.Errorf("look into %s: %w", from, err)
	}
	return g, nil
}

// readFiles reads through all files of the image once.
func (g *ground) readFiles(folders []string) error {
	files := mutate.Extract(g.image)
	defer func() { _ = files.Close() }()
	for r := tar.NewReader(files); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
		for _, f := range folders {
			// A link stands for the folder it leads to.
			if at == f && header.Typeflag != tar.TypeReg {
				g.folders[f] = true
			}
		}
		if m := pythonProgram.FindStringSubmatch(at); len(m) > 1 && newer(m[1], g.python) {
			g.python = m[1]
		}
		switch at {
		case "bin/bash", "usr/bin/bash":
			g.bash = true
		case "etc/passwd":
			g.passwd, err = text(r, header)
		case "etc/group":
			g.group, err = text(r, header)
		}
		if err != nil {
			return fmt.Errorf("/%s: %w", at, err)
		}
	}
}

// pythonProgram is where images have Python: their distribution's, or their own.
var pythonProgram = regexp.MustCompile(`^usr/(?:local/)?bin/python(3\.[0-9]{1,3})$`)

// newer compares two versions 3.N; "" is older than all.
func newer(a, b string) bool {
	minor := func(v string) int {
		n, err := strconv.Atoi(strings.TrimPrefix(v, "3."))
		if err != nil {
			return -1
		}
		return n
	}
	return minor(a) > minor(b)
}

// text reads a small file.
func text(r io.Reader, header *tar.Header) (string, error) {
	if header.Typeflag != tar.TypeReg {
		return "", errors.New("it is no plain file")
	}
	const most = 1 << 20
	raw, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && len(raw) > most {
		err = errors.New("it is too long")
	}
	return string(raw), err
}
