// Package images gives the local node the root file systems of OCI images: pulled from a
// registry, with the credentials that `docker login` left, and unpacked once for each digest
// into a folder of the user's cache.
//
//	image, err := store.Ensure(ctx, "python:3.13-slim", images.IfNotPresent, progress)
//	// image.Root is the lower layer of an overlay; it is never written again
//	image.Release()
//
// It runs nothing and mounts nothing; package node does both. An image is not trusted: package
// layer of umoci keeps what it unpacks below the folder, device files are left out, and the
// sizes are bounded. Nothing is left of an image that is refused.
//
// # States of an image
//
//	absent --Ensure--> unpacking (a folder that ends in .new, under the image's lock)
//	unpacking --complete--> unpacked, by one rename
//	unpacking --error, or the process is killed--> absent; the next pull removes the folder
//	unpacked --Ensure--> held, by a shared lock that ends with Release or the process
//	held --the last Release--> unpacked
//	unpacked --too many bytes, and the longest unused--> absent (collect.go)
package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sandlane/sandlane/filelock"
	"github.com/sandlane/sandlane/local/node/removal"
)

// Image is an unpacked image.
type Image struct {
	// Digest is that of the reference's manifest or index, as a container's status shows it:
	// "sha256:…".
	Digest string
	// Root is the folder of the image's files.
	Root string
	// Config has the entry point, the variables, the user and the working directory.
	Config v1.Config

	held *os.File
}

// record is what the cache knows of a reference that was pulled before.
type record struct {
	Digest   string    `json:"digest"`   // what the reference named
	Manifest v1.Hash   `json:"manifest"` // of the image for this machine
	Config   v1.Config `json:"config"`
}

// Options of a Store. The zero value keeps images in the user's cache.
type Options struct {
	// Dir is the folder of unpacked images; default "sandlane/images" in the user's cache.
	Dir string
	// MaxBytes and MaxFiles bound one unpacked image; zero means 16 GiB and 500,000.
	MaxBytes int64
	MaxFiles int
	// Keep bounds the bytes of all images, as far as those that are not held can go; zero means 20 GiB.
	Keep int64
	// Logins are asked before what docker login left; nil: none.
	Logins authn.Keychain
	// Remote are more options of each call to a registry. For tests.
	Remote []remote.Option
}

// Store is the cache of unpacked images. It is safe for concurrent use, also by several
// processes.
type Store struct{ o Options }

// maxConfig bounds an image's configuration, in bytes.
const maxConfig = 8 << 20

// New returns the store in o.Dir, which no other user can enter: an image's programs may be
// set-user-ID root.
func New(o Options) (*Store, error) {
	if o.Dir == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("no cache folder for images (set $HOME or $XDG_CACHE_HOME): %w", err)
		}
		o.Dir = filepath.Join(dir, "sandlane", "images")
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 16 << 30
	}
	if o.Keep == 0 {
		o.Keep = 20 << 30
	}
	if o.MaxFiles == 0 {
		o.MaxFiles = 500_000
	}
	if err := errors.Join(os.MkdirAll(o.Dir, 0o700), os.Chmod(o.Dir, 0o700)); err != nil {
		return nil, fmt.Errorf("make the folder of images: %w", err)
	}
	return &Store{o}, nil
}

// Policy says when Ensure asks a registry what a reference names.
type Policy int

// The policies, as a pod's imagePullPolicy has them.
const (
	IfNotPresent Policy = iota // only if the image is not there
	Always                     // each time
	Never                      // an image that is not there is ErrNotHere
)

// ErrNotHere is returned by Ensure with Never for an image that was not pulled before.
var ErrNotHere = errors.New("the image is not on this node, and may not be pulled")

// ErrReference is returned by Ensure for a name that is no reference of an image.
var ErrReference = errors.New("not a reference of an image")

// Ensure returns an image, unpacked, which stays until Release. progress, which may be nil, is told how many bytes of the
// layers have been read, of how many; it is called often, by one goroutine. An error means that
// nothing of the image is there.
func (s *Store) Ensure(ctx context.Context, reference string, policy Policy, progress func(done, total int64)) (*Image, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReference, err)
	}
	if policy != Always {
		image, err := s.known(ref)
		if image != nil || err != nil {
			return image, err
		}
	}
	if policy == Never {
		return nil, fmt.Errorf("%s: %w", reference, ErrNotHere)
	}
	var keychain authn.Keychain = authn.DefaultKeychain
	if s.o.Logins != nil {
		keychain = authn.NewMultiKeychain(s.o.Logins, keychain)
	}
	options := append([]remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(keychain),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
	}, s.o.Remote...)
	described, err := remote.Get(ref, options...)
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", reference, err)
	}
	image, err := described.Image()
	if err != nil {
		return nil, fmt.Errorf("pull %s for linux/%s: %w", reference, runtime.GOARCH, err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, fmt.Errorf("pull the manifest of %s: %w", reference, err)
	}
	if manifest.Config.Size > maxConfig { // it is read into memory
		return nil, fmt.Errorf("pull %s: %w: its configuration has %d bytes", reference, ErrTooLarge, manifest.Config.Size)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("pull the configuration of %s: %w", reference, err)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH {
		return nil, fmt.Errorf("%s is for %s/%s, and this machine is linux/%s", reference, config.OS, config.Architecture, runtime.GOARCH)
	}
	digest, err := image.Digest()
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", reference, err)
	}
	held, err := s.unpacked(ctx, image, digest, progress)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", reference, err)
	}
	if err := s.note(ref, record{described.Digest.String(), digest, config.Config}); err != nil {
		return nil, errors.Join(fmt.Errorf("note what %s is: %w", reference, err), held.Close())
	}
	return &Image{Digest: described.Digest.String(), Root: s.root(digest), Config: config.Config, held: held}, nil
}

// known returns the image that a reference named when it was last pulled; nil if it is not
// there.
func (s *Store) known(ref name.Reference) (*Image, error) {
	b, err := os.ReadFile(s.recordFile(ref))
	if err != nil {
		return nil, nil
	}
	var r record
	if json.Unmarshal(b, &r) != nil || r.Manifest.Hex == "" {
		return nil, nil
	}
	held, err := s.use(r.Manifest)
	if held == nil || err != nil {
		return nil, err
	}
	return &Image{Digest: r.Digest, Root: s.root(r.Manifest), Config: r.Config, held: held}, nil
}

// note writes a record in one step.
func (s *Store) note(ref name.Reference, r record) error {
	file := s.recordFile(ref)
	f, err := os.CreateTemp(s.o.Dir, ".record-")
	if err != nil {
		return err
	}
	err = errors.Join(json.NewEncoder(f).Encode(r), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func (s *Store) recordFile(ref name.Reference) string {
	hash := sha256.Sum256([]byte(ref.Name()))
	return filepath.Join(s.o.Dir, "ref-"+hex.EncodeToString(hash[:])+".json")
}

func (s *Store) folder(digest v1.Hash) string {
	return filepath.Join(s.o.Dir, digest.Algorithm+"-"+digest.Hex)
}

func (s *Store) root(digest v1.Hash) string { return filepath.Join(s.folder(digest), "root") }

// unpacked makes the folder of an image's files unless it is there, and holds it.
func (s *Store) unpacked(ctx context.Context, image v1.Image, digest v1.Hash, progress func(done, total int64)) (held *os.File, err error) {
	dir := s.folder(digest)
	unlock, err := filelock.Lock(ctx, dir+".lock", nil)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if held, err := s.use(digest); held != nil || err != nil {
		return held, err
	}
	unfinished := dir + unfinishedEnd
	if err := errors.Join(removal.Tree(unfinished), removal.Tree(dir), os.MkdirAll(filepath.Join(unfinished, "root"), 0o755)); err != nil {
		return nil, err
	}
	u := unpacker{root: filepath.Join(unfinished, "root"), bytes: s.o.MaxBytes, files: s.o.MaxFiles, folders: map[string]bool{}, progress: progress}
	err = u.unpack(ctx, image)
	if err == nil {
		err = writeSize(unfinished, s.o.MaxBytes-u.bytes+int64(s.o.MaxFiles-u.files)*bytesOfFile)
	}
	if err == nil {
		held, err = s.hold(digest) // before it has its name, by which other pulls find it to remove it
	}
	if err == nil {
		if err = os.Rename(unfinished, dir); err != nil {
			err = errors.Join(err, held.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(err, removal.Tree(unfinished))
	}
	if err := s.collect(); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return held, nil
}
