package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"aead.dev/minisign"
)

const (
	manifestFile  = "manifest.json"
	signatureFile = manifestFile + ".minisig"
	// maxManifest bounds the first two files, which are read into memory.
	maxManifest = 1 << 20
)

// manifest says what a bundle is and has.
type manifest struct {
	Version string `json:"version"` // of the sandlane that it is for
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Files   []file `json:"files"`
}

// file is a program of a bundle.
type file struct {
	Path   string `json:"path"` // below the cache folder, with slashes
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Build names what a bundle must be for. All fields are set.
type Build struct{ Version, OS, Arch string }

func (b Build) String() string { return fmt.Sprintf("sandlane %s for %s/%s", b.Version, b.OS, b.Arch) }

// Name is the name of the file of a build's bundle.
func (b Build) Name() string {
	return fmt.Sprintf("sandlane-bundle-%s-%s-%s.tar.gz", b.Version, b.OS, b.Arch)
}

// ErrSignature is returned for a bundle that was not signed by the key, or was changed since.
var ErrSignature = errors.New("the bundle's signature is not of this key, or the bundle was changed; nothing of it was used")

// read checks a manifest.
func read(text, signature []byte, key minisign.PublicKey, want Build) (*manifest, error) {
	if !minisign.Verify(key, text, signature) {
		return nil, ErrSignature
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("read the bundle's manifest: %w", err)
	}
	if got := (Build{m.Version, m.OS, m.Arch}); got != want {
		return nil, fmt.Errorf("the bundle is for %s, and this is %s: take the bundle of the same release", got, want)
	}
	for _, f := range m.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) || f.Bytes < 0 {
			return nil, fmt.Errorf("the bundle names a file %q of %d bytes", f.Path, f.Bytes)
		}
	}
	return &m, nil
}
