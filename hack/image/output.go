package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

type platformImage struct {
	platform v1.Platform
	image    v1.Image
}

// reference is the name of an image, on the registry if there is one.
func (b *builder) reference(image string) (name.Tag, error) {
	full := image
	if b.push != "" {
		full = b.push + "/" + image
	}
	tag, err := name.NewTag(full + ":" + b.tag)
	if err != nil {
		return name.Tag{}, fmt.Errorf("the name %s:%s: %w", full, b.tag, err)
	}
	return tag, nil
}

// save writes a tarball for each platform, in the form that docker load, podman
// load, ctr images import and kind load image-archive read.
func (b *builder) save(image string, built []platformImage) error {
	tag, err := b.reference(image)
	if err != nil {
		return err
	}
	if b.layout != "" {
		return b.addToLayout(image+":"+tag.TagStr(), built)
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	for _, one := range built {
		path := filepath.Join(b.out, image+"-"+one.platform.OS+"-"+one.platform.Architecture+".tar")
		if err := writeWhole(path, tag, one.image); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		digest, err := one.image.Digest()
		if err != nil {
			return fmt.Errorf("the digest for %s: %w", one.platform, err)
		}
		fmt.Fprintf(b.stdout, "%s  %s  %s\n", path, tag, digest)
	}
	return nil
}

func writeWhole(path string, tag name.Tag, image v1.Image) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = f.Close() // a second time, after success
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err := tarball.Write(tag, image, f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// addToLayout adds an image to the folder of OCI's layout, or replaces it there.
func (b *builder) addToLayout(name string, built []platformImage) error {
	at, err := layout.FromPath(b.layout)
	if errors.Is(err, fs.ErrNotExist) {
		at, err = layout.Write(b.layout, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	}
	if err != nil {
		return fmt.Errorf("open the layout %s: %w", b.layout, err)
	}
	named, whole := layout.WithAnnotations(map[string]string{refName: name}), wholeOf(built)
	if index, ok := whole.(v1.ImageIndex); ok {
		err = at.ReplaceIndex(index, match.Name(name), named)
	} else {
		err = at.ReplaceImage(built[0].image, match.Name(name), named)
	}
	if err != nil {
		return fmt.Errorf("add %s to the layout: %w", name, err)
	}
	digest, err := whole.Digest()
	if err != nil {
		return fmt.Errorf("the digest: %w", err)
	}
	fmt.Fprintf(b.stdout, "%s  %s@%s\n", b.layout, name, digest)
	return nil
}

// refName is the annotation by which a layout names an image.
const refName = "org.opencontainers.image.ref.name"

// pushable is an image or an index of several.
type pushable interface {
	remote.Taggable
	Digest() (v1.Hash, error)
}

// wholeOf is the image as it is for one platform, an index for more.
func wholeOf(built []platformImage) pushable {
	if len(built) == 1 {
		return built[0].image
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, one := range built {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: one.image, Descriptor: v1.Descriptor{Platform: &one.platform},
		})
	}
	return index
}

// pushAll pushes an image.
func (b *builder) pushAll(ctx context.Context, image string, built []platformImage) error {
	tag, err := b.reference(image)
	if err != nil {
		return err
	}
	pushed := wholeOf(built)
	if err := remote.Push(tag, pushed, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return err
	}
	digest, err := pushed.Digest()
	if err != nil {
		return fmt.Errorf("the digest: %w", err)
	}
	fmt.Fprintf(b.stdout, "pushed %s@%s\n", tag, digest)
	return nil
}
