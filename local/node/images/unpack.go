package images

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/umoci/oci/layer"
)

// What an image may not be.
var (
	// ErrTooLarge: it has more bytes or files than a Store takes.
	ErrTooLarge = errors.New("the image is too large")
	// ErrDigest: a layer is not what the image's configuration says.
	ErrDigest = errors.New("a layer does not have the digest that the image names")
)

// maxHeaders bounds the bytes that a file's name and attributes take in a layer, on average.
const maxHeaders = 4 << 10

// unpacker unpacks one image into a folder.
type unpacker struct {
	root     string
	bytes    int64           // that may still come
	files    int             // that may still come, with their folders
	folders  map[string]bool // that were counted
	progress func(done, total int64)
	done     int64
}

// unpack applies the layers in their order. Each is read to its end, and has the digest of its
// compressed form, which go-containerregistry checks, and that of its plain form.
func (u *unpacker) unpack(ctx context.Context, image v1.Image) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	if len(config.RootFS.DiffIDs) != len(layers) {
		return fmt.Errorf("%w: %d layers, of which %d have one", ErrDigest, len(layers), len(config.RootFS.DiffIDs))
	}
	var total int64
	for _, l := range layers {
		size, err := l.Size()
		if err != nil {
			return err
		}
		total += size
	}
	for i, l := range layers {
		if err := u.layer(ctx, l, config.RootFS.DiffIDs[i]); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(layers), err)
		}
		size, _ := l.Size()
		u.done += size
		if u.progress != nil {
			u.progress(u.done, total)
		}
	}
	return nil
}

func (u *unpacker) layer(ctx context.Context, l v1.Layer, want v1.Hash) error {
	plain, err := l.Uncompressed()
	if err != nil {
		return err
	}
	defer func() { _ = plain.Close() }()
	// An extractor is of one layer: a whiteout does not remove what its own layer has made.
	// KeepDirlinks: a later layer may have files below a folder that is a link by now, as
	// /lib is in today's distributions.
	extractor := layer.NewTarExtractor(&layer.UnpackOptions{OnDiskFormat: layer.DirRootfs{}, KeepDirlinks: true})
	hash := sha256.New()
	raw := u.bytes + int64(u.files)*maxHeaders // a layer has headers beside the files
	bounded := &boundedReader{ctx: ctx, r: io.TeeReader(plain, hash), left: &raw}
	entries := tar.NewReader(bounded)
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		u.files--
		// A path makes the folders in it that no path before has named.
		for dir := path.Dir(path.Clean("/" + header.Name)); dir != "/" && !u.folders[dir] && u.files >= 0; dir = path.Dir(dir) {
			u.folders[dir] = true
			u.files--
		}
		if u.files < 0 {
			return fmt.Errorf("%w: too many files", ErrTooLarge)
		}
		// The zeros of a sparse file are in no byte of the layer.
		if header.Size > u.bytes {
			return fmt.Errorf("%w: too many bytes", ErrTooLarge)
		}
		switch header.Typeflag {
		case tar.TypeChar, tar.TypeBlock:
			continue // pods get the devices that the node gives them
		case tar.TypeXGlobalHeader:
			continue
		}
		if err := extractor.UnpackEntry(u.root, header, &boundedReader{ctx: ctx, r: entries, left: &u.bytes}); err != nil {
			return fmt.Errorf("%q: %w", header.Name, err)
		}
	}
	if _, err := io.Copy(io.Discard, bounded); err != nil { // padding: the digest is of all bytes
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); want.Algorithm != "sha256" || got != want.Hex {
		return fmt.Errorf("%w: sha256:%s, not %s", ErrDigest, got, want)
	}
	return nil
}

// boundedReader fails once more than *left bytes were read, and when ctx has ended.
type boundedReader struct {
	ctx  context.Context
	r    io.Reader
	left *int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, fmt.Errorf("%w: too many bytes", ErrTooLarge)
	}
	return n, err
}
