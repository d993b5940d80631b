package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
)

// push copies images and charts of a layout to a registry, each as it is: its digest stays.
func push(ctx context.Context, folder, to string, stdout io.Writer) error {
	if err := checkBlobs(filepath.Join(folder, "blobs", "sha256")); err != nil {
		return fmt.Errorf("check the release's layout: %w", err)
	}
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return fmt.Errorf("open the release's layout: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("read the release's layout: %w", err)
	}
	for _, one := range manifest.Manifests {
		tag, err := name.NewTag(to + "/" + one.Annotations[specs.AnnotationRefName])
		if err != nil {
			return fmt.Errorf("-push: %w", err)
		}
		what, err := content(index, one)
		if err == nil {
			err = remote.Push(tag, what, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
		}
		if err != nil {
			return fmt.Errorf("push %s: %w", tag, err)
		}
		fmt.Fprintf(stdout, "pushed %s@%s\n", tag, one.Digest)
	}
	return nil
}

// checkBlobs checks that each blob has its digest. Of manifests no registry would: a changed
// one is another, with a digest of its own.
func checkBlobs(dir string) error {
	blobs, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, blob := range blobs {
		f, err := os.Open(filepath.Join(dir, blob.Name()))
		if err != nil {
			return err
		}
		hash, _, err := v1.SHA256(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		if hash.Hex != blob.Name() {
			return fmt.Errorf("the SHA-256 of blob %s is %s: take the release anew", blob.Name(), hash.Hex)
		}
	}
	return nil
}

// content is the image, chart or index that a descriptor names.
func content(in v1.ImageIndex, of v1.Descriptor) (remote.Taggable, error) {
	if of.MediaType.IsIndex() {
		return in.ImageIndex(of.Digest)
	}
	return in.Image(of.Digest)
}
