package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
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

// pushAll pushes an image: as it is for one platform, below an index for more.
func (b *builder) pushAll(ctx context.Context, image string, built []platformImage) error {
	tag, err := b.reference(image)
	if err != nil {
		return err
	}
	var pushed interface {
		remote.Taggable
		Digest() (v1.Hash, error)
	} = built[0].image
	if len(built) > 1 {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, one := range built {
			index = mutate.AppendManifests(index, mutate.IndexAddendum{
				Add: one.image, Descriptor: v1.Descriptor{Platform: &one.platform},
			})
		}
		pushed = index
	}
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
