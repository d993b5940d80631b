package store

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/stream"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sandlane/sandlane/egress"
)

// Options of New.
type Options struct {
	// Registry is the template registry, with the path that is before the names of
	// repositories: "registry.example/templates". On Docker Hub it is "docker.io/organisation".
	Registry string
	// Keychain has the registry's credentials. Nil: none.
	Keychain authn.Keychain
	// Bases are the images that may be bases: names without tags, of which a last "*" stands
	// for any text. Empty: none may.
	Bases []string
	// Closed are the ranges of addresses that no base is read from, unless its registry is
	// named in Bases with its port.
	Closed egress.Closed
	// Platform is that of images; zero: Linux on this machine's architecture.
	Platform v1.Platform
}

// Store is the template registry. It is safe for concurrent use.
type Store struct {
	prefix   string // before a namespace's UID in the name of its repository
	keychain authn.Keychain
	bases    []string
	outside  http.RoundTripper // to the registries of bases
	platform v1.Platform
}

// New returns a Store; it makes no connection.
func New(o Options) (*Store, error) {
	// The whole name is parsed: without the UID, "docker.io/organisation" is one of library.
	example, err := name.NewRepository(o.Registry + "/x")
	if err == nil && path.Clean(example.Name()) != example.Name() {
		err = errors.New("a part of it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("the template registry %q: %w", o.Registry, err)
	}
	// A name of one part on Docker Hub is in library, which is Docker's own.
	if below := example.RepositoryStr(); example.RegistryStr() == name.DefaultRegistry && (strings.Count(below, "/") != 1 || below == "library/x") {
		return nil, fmt.Errorf("the template registry %q: names on Docker Hub have two parts, so that it must be docker.io/ORGANISATION", o.Registry)
	}
	s := &Store{prefix: strings.TrimSuffix(example.Name(), "x"), keychain: o.Keychain, bases: o.Bases, platform: o.Platform}
	if s.keychain == nil {
		s.keychain = authn.NewMultiKeychain() // nobody's
	}
	if s.platform.OS == "" {
		s.platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	}
	s.outside, err = outside(o.Bases, o.Closed)
	return s, err
}

// Failure is an error of the template registry. Its text is for users, who are not told what is
// inside: Err is for the log.
type Failure struct{ Err error }

func (f *Failure) Error() string { return "the registry of templates failed" }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// repository is that of a namespace; the controller names it alike (reconcilers/builds).
func (s *Store) repository(namespaceUID string) (name.Repository, error) {
	if namespaceUID == "" {
		return name.Repository{}, errors.New("the namespace has no UID")
	}
	return name.NewRepository(s.prefix + namespaceUID)
}

// inside are the options of calls to the template registry.
func (s *Store) inside(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(s.keychain), remote.WithPlatform(s.platform)}
}

// files is the reference of an upload.
func (s *Store) files(namespaceUID, template, hash string) (name.Tag, error) {
	repository, err := s.repository(namespaceUID)
	if err != nil {
		return name.Tag{}, err
	}
	of := sha256.Sum256([]byte(template + "/" + hash))
	return repository.Tag("files-" + hex.EncodeToString(of[:20])), nil
}

// Upload is what an upload of size bytes is kept as.
func (s *Store) Upload(namespaceUID, template, hash string, size int64) (Layer, error) {
	tag, err := s.files(namespaceUID, template, hash)
	if err != nil {
		return Layer{}, err
	}
	return Layer{tag.TagStr(), size}, nil
}

// HasFiles returns the upload of that hash that is kept for the template, by its own digest: equal
// contents have one. Empty: there is none.
func (s *Store) HasFiles(ctx context.Context, namespaceUID, template, hash string) (reference string, err error) {
	tag, err := s.files(namespaceUID, template, hash)
	if err != nil {
		return "", err
	}
	return s.find(ctx, tag)
}

// find returns what has a tag, by digest; empty: nothing has.
func (s *Store) find(ctx context.Context, tag name.Tag) (reference string, err error) {
	is, err := remote.Head(tag, s.inside(ctx)...)
	if isMissing(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", tag.TagStr(), &Failure{err})
	}
	return tag.Repository.Digest(is.Digest.String()).String(), nil
}

// step is the tag of the image that steps make. key says all that it depends on.
func (s *Store) step(namespaceUID, key string) (name.Tag, error) {
	repository, err := s.repository(namespaceUID)
	if err != nil {
		return name.Tag{}, err
	}
	of := sha256.Sum256([]byte(key))
	return repository.Tag("step-" + hex.EncodeToString(of[:])), nil
}

// Step returns the image that was kept for a key, by digest; empty: there is none.
func (s *Store) Step(ctx context.Context, namespaceUID, key string) (reference string, err error) {
	tag, err := s.step(namespaceUID, key)
	if err != nil {
		return "", err
	}
	return s.find(ctx, tag)
}

// KeepStep keeps an image of the namespace for a key, in place of an earlier one.
func (s *Store) KeepStep(ctx context.Context, namespaceUID, key string, made *Base) error {
	tag, err := s.step(namespaceUID, key)
	if err != nil {
		return err
	}
	if err := remote.Tag(tag, made.image, s.inside(ctx)...); err != nil {
		return fmt.Errorf("keep what a step made: %w", &Failure{err})
	}
	return nil
}

// isMissing reports whether the registry has answered that it has not got it.
func isMissing(err error) bool {
	var answer *transport.Error
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}

// PutFiles keeps an upload. If reading content fails, nothing is kept.
func (s *Store) PutFiles(ctx context.Context, namespaceUID, template, hash string, content io.Reader) error {
	tag, err := s.files(namespaceUID, template, hash)
	if err != nil {
		return err
	}
	pushed, err := s.push(ctx, tag.Repository, content, gzip.NoCompression) // it is compressed already
	if err != nil {
		return fmt.Errorf("keep an upload: %w", &Failure{err})
	}
	image, err := mutate.AppendLayers(empty.Image, pushed)
	if err != nil {
		return fmt.Errorf("keep an upload: %w", err)
	}
	if err := remote.Write(tag, image, s.inside(ctx)...); err != nil {
		return fmt.Errorf("keep an upload: %w", &Failure{err})
	}
	return nil
}

// ErrNoFiles says that the upload is not there.
var ErrNoFiles = errors.New("its files were not uploaded")

// Files returns the content of an upload that HasFiles has found.
func (s *Store) Files(ctx context.Context, reference string) (io.ReadCloser, error) {
	ref, err := name.NewDigest(reference)
	if err != nil {
		return nil, fmt.Errorf("read an upload: %w", err)
	}
	image, err := remote.Image(ref, s.inside(ctx)...)
	if isMissing(err) {
		return nil, ErrNoFiles
	}
	if err != nil {
		return nil, fmt.Errorf("read an upload: %w", &Failure{err})
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		return nil, fmt.Errorf("read an upload: it has %d layers: %w", len(layers), err)
	}
	return layers[0].Uncompressed()
}

// push uploads a stream as a layer.
func (s *Store) push(ctx context.Context, to name.Repository, content io.Reader, compression int) (v1.Layer, error) {
	l := stream.NewLayer(io.NopCloser(content), stream.WithCompressionLevel(compression))
	if err := remote.WriteLayer(to, l, s.inside(ctx)...); err != nil {
		return nil, err
	}
	digest, err := l.Digest()
	if err != nil {
		return nil, err
	}
	diffID, err := l.DiffID()
	if err != nil {
		return nil, err
	}
	size, err := l.Size()
	return pushed{digest, diffID, size}, err
}

// pushed is a layer that the registry has.
type pushed struct {
	digest, diffID v1.Hash
	size           int64
}

var errPushed = errors.New("the layer is in the registry alone")

func (p pushed) Digest() (v1.Hash, error)           { return p.digest, nil }
func (p pushed) DiffID() (v1.Hash, error)           { return p.diffID, nil }
func (p pushed) Size() (int64, error)               { return p.size, nil }
func (pushed) MediaType() (types.MediaType, error)  { return types.DockerLayer, nil }
func (pushed) Compressed() (io.ReadCloser, error)   { return nil, errPushed }
func (pushed) Uncompressed() (io.ReadCloser, error) { return nil, errPushed }
