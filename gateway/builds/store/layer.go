package store

import (
	"errors"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Layer is a layer as it is kept.
type Layer struct {
	// Name is its digest; of an upload its tag.
	Name string
	// Size is in bytes.
	Size int64
}

// layersOf are those of a manifest.
func layersOf(manifest *v1.Manifest) []Layer {
	all := make([]Layer, len(manifest.Layers))
	for i, l := range manifest.Layers {
		all[i] = Layer{l.Digest.String(), l.Size}
	}
	return all
}

// ErrTooLarge says that a layer has more bytes than it may have.
var ErrTooLarge = errors.New("what was changed is larger than it may be")

// atMost reads left bytes, and fails if there are more.
type atMost struct {
	from io.Reader
	left int64
}

func (a *atMost) Read(p []byte) (int, error) {
	n, err := a.from.Read(p[:min(int64(len(p)), a.left+1)])
	if a.left -= int64(n); a.left < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}
