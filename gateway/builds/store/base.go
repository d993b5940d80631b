package store

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sandlane/sandlane/egress"
	"github.com/sandlane/sandlane/egress/upstream"
	"github.com/sandlane/sandlane/gateway/builds/layer"
)

const (
	// maxBase bounds the layers of a base as they are sent, maxUnpacked as they are unpacked, and
	// maxConfig its configuration, in bytes.
	maxBase     = 16 << 30
	maxUnpacked = 64 << 30
	maxConfig   = 8 << 20
	// maxManifest bounds a manifest, or a list of them: 4 MiB, as registries do.
	maxManifest = 4 << 20

	dialTimeout = 10 * time.Second
)

// ErrBase says that the image may not be a base, or is none.
var ErrBase = errors.New("this image cannot be a base")

// Allowed returns nil if the patterns let an image be a base of a namespace's builds, else an
// ErrBase. It reads nothing.
func (s *Store) Allowed(image string) error {
	_, err := s.baseOf(image)
	return err
}

func (s *Store) baseOf(image string) (name.Reference, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, fmt.Errorf("%w: %q is no name of an image", ErrBase, image)
	}
	repository := ref.Context().Name()
	switch {
	case path.Clean(repository) != repository: // a registry may take what has .. in it for another repository
		return nil, fmt.Errorf("%w: %q is no name of an image", ErrBase, image)
	case strings.HasPrefix(repository+"/", s.prefix):
		return nil, fmt.Errorf("%w: %s is in the registry of templates", ErrBase, image)
	case !slices.ContainsFunc(s.bases, func(pattern string) bool { return matches(pattern, repository) }):
		return nil, fmt.Errorf("%w: the operator allows no base %s", ErrBase, repository)
	}
	return ref, nil
}

// matches compares a repository with a pattern, in which Docker Hub may have its short name.
func matches(pattern, repository string) bool {
	pattern = strings.Replace(pattern, "docker.io/", "index.docker.io/", 1)
	pattern = strings.Replace(pattern, "index.index.", "index.", 1)
	if prefix, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(repository, prefix)
	}
	return pattern == repository
}

// Base is an image in the repository of a namespace: the copy of a base, or what steps have made.
type Base struct {
	// Reference names it by digest.
	Reference string
	Config    v1.Config
	// Layers are those that the repository has of it.
	Layers []Layer

	image  v1.Image
	listed *listings
}

// CopyBase copies an image for this platform into a namespace's repository. Without a user
// name it is read as anybody can. It calls admit with what would be kept before it keeps that; an
// error ends the copy.
func (s *Store) CopyBase(ctx context.Context, namespaceUID, image, username, password string, admit func([]Layer) error) (*Base, error) {
	ref, err := s.baseOf(image)
	if err != nil {
		return nil, err
	}
	repository, err := s.repository(namespaceUID)
	if err != nil {
		return nil, err
	}
	auth := authn.Anonymous
	if username != "" {
		auth = &authn.Basic{Username: username, Password: password}
	}
	read, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuth(auth), remote.WithTransport(s.outside), remote.WithPlatform(s.platform))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", image, err)
	}
	manifest, err := s.check(image, read)
	if err != nil {
		return nil, err
	}
	if err := admit(layersOf(manifest)); err != nil {
		return nil, err
	}
	digest, err := read.Digest()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", image, err)
	}
	to := repository.Digest(digest.String())
	if err := remote.Write(to, unmounted{read}, s.inside(ctx)...); err != nil {
		if !errors.Is(err, upstream.ErrClosed) { // a layer's address is the base's affair
			err = &Failure{err}
		}
		return nil, fmt.Errorf("copy %s: %w", image, err)
	}
	return s.Base(ctx, namespaceUID, to.String())
}

// check returns the manifest. It refuses what would not run, and what is too large.
func (s *Store) check(image string, read v1.Image) (*v1.Manifest, error) {
	manifest, err := read.Manifest()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", image, err)
	}
	if manifest.Config.Size < 0 || manifest.Config.Size > maxConfig {
		return nil, fmt.Errorf("%w: the configuration of %s has %d bytes", ErrBase, image, manifest.Config.Size)
	}
	total := int64(0)
	for _, l := range append(slices.Clone(manifest.Layers), manifest.Config) {
		switch total += max(l.Size, 0); {
		case len(l.URLs) > 0 || !l.MediaType.IsDistributable(): // nodes would read it from there, wherever that is
			return nil, fmt.Errorf("%w: %s has a layer that lies outside of its registry", ErrBase, image)
		case l.Size < 0 || total > maxBase: // of an unknown size would be of any
			return nil, fmt.Errorf("%w: %s has more than %d GiB", ErrBase, image, maxBase>>30)
		}
	}
	config, err := read.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", image, err)
	}
	if config.OS != s.platform.OS || config.Architecture != s.platform.Architecture {
		return nil, fmt.Errorf("%w: %s is for %s/%s, and sandboxes are %s/%s", ErrBase, image, config.OS, config.Architecture, s.platform.OS, s.platform.Architecture)
	}
	return manifest, nil
}

// Base returns an image of a namespace's repository, by digest: a base that was copied before, or
// what was built. One of another repository is an ErrBase.
func (s *Store) Base(ctx context.Context, namespaceUID, reference string) (*Base, error) {
	repository, err := s.repository(namespaceUID)
	if err != nil {
		return nil, err
	}
	ref, err := name.NewDigest(reference)
	if err != nil || ref.Context().Name() != repository.Name() {
		return nil, fmt.Errorf("%w: %s is not in the repository of its namespace, by digest", ErrBase, reference)
	}
	copied, err := remote.Image(ref, s.inside(ctx)...)
	if err != nil {
		return nil, fmt.Errorf("read the copy of the base: %w", &Failure{err})
	}
	manifest, err := copied.Manifest()
	if err != nil {
		return nil, fmt.Errorf("read the copy of the base: %w", &Failure{err})
	}
	config, err := copied.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the copy of the base: %w", &Failure{err})
	}
	return &Base{Reference: reference, Config: config.Config, Layers: layersOf(manifest), image: copied, listed: &listings{of: map[v1.Hash][]byte{}}}, nil
}

// unmounted is an image whose layers are copied, and never mounted from a repository that the
// registry happens to have: a client of it might have no rights to that.
type unmounted struct{ v1.Image }

func (u unmounted) Layers() ([]v1.Layer, error) {
	layers, err := u.Image.Layers()
	for i := range layers {
		layers[i] = plain{layers[i]}
	}
	return layers, err
}

type plain struct{ v1.Layer }

// entries are those of the base's layers.
func (b *Base) entries() iter.Seq2[layer.Entry, error] {
	return func(yield func(layer.Entry, error) bool) {
		layers, err := b.image.Layers()
		if err != nil {
			yield(layer.Entry{}, err)
			return
		}
		left := int64(maxUnpacked)
		for i, l := range layers {
			of, err := l.Digest()
			if err != nil {
				yield(layer.Entry{}, err)
				return
			}
			if text, known := b.listed.of[of]; known {
				if !each(text, i, yield) {
					return
				}
				continue
			}
			made := newListing()
			goesOn := entriesOf(l, i, &left, func(e layer.Entry, err error) bool {
				if err == nil {
					made.add(e.Header)
				}
				return yield(e, err) && err == nil
			})
			if !goesOn {
				return
			}
			b.listed.keep(of, made)
		}
	}
}

// entriesOf yields the entries of one layer, if left, the bytes that it and those after it may
// have, lasts.
func entriesOf(l v1.Layer, number int, left *int64, yield func(layer.Entry, error) bool) bool {
	content, err := l.Uncompressed()
	if err != nil {
		return yield(layer.Entry{}, err)
	}
	defer func() { _ = content.Close() }() // it was only read
	limited := &io.LimitedReader{R: content, N: *left}
	defer func() { *left = limited.N }()
	for from := tar.NewReader(limited); ; {
		h, err := from.Next()
		if err != nil && limited.N == 0 {
			return yield(layer.Entry{}, fmt.Errorf("%w: unpacked it has more than %d GiB", ErrBase, maxUnpacked>>30))
		}
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			return yield(layer.Entry{}, err)
		}
		if !yield(layer.Entry{Layer: number, Header: h}, nil) {
			return false
		}
	}
}

// Append pushes the base with one more layer, the files of sandboxd's archive, and returns the new
// image. A layer of more than most bytes, uncompressed, is an ErrTooLarge, of which the registry
// keeps nothing; so it is with one that admit refuses, of which only the layer's blob is there,
// which no image names.
func (s *Store) Append(ctx context.Context, namespaceUID string, base *Base, archive io.Reader, most int64, admit func([]Layer) error) (*Base, error) {
	repository, err := s.repository(namespaceUID)
	if err != nil {
		return nil, err
	}
	read, write := io.Pipe()
	converted := make(chan error, 1)
	go func() {
		err := layer.Convert(write, archive, base.entries())
		converted <- err
		_ = write.CloseWithError(err)
	}()
	added, err := s.push(ctx, repository, &atMost{read, most}, gzip.BestSpeed)
	_ = read.CloseWithError(err) // ends a Convert that still writes
	// What was wrong with the files comes first: the push fails because of it.
	if errors.Is(err, ErrTooLarge) {
		<-converted
		return nil, ErrTooLarge
	}
	if bad := <-converted; bad != nil && (err == nil || !errors.Is(bad, err)) {
		return nil, bad
	}
	if err != nil {
		return nil, fmt.Errorf("push what was changed: %w", &Failure{err})
	}
	digest, err := added.Digest()
	if err != nil {
		return nil, fmt.Errorf("make the image: %w", err)
	}
	size, err := added.Size()
	if err != nil {
		return nil, fmt.Errorf("make the image: %w", err)
	}
	if err := admit([]Layer{{digest.String(), size}}); err != nil {
		return nil, err
	}
	image, err := mutate.Append(base.image, mutate.Addendum{Layer: added, History: v1.History{CreatedBy: "sandlane"}})
	if err != nil {
		return nil, fmt.Errorf("make the image: %w", err)
	}
	reference, err := s.pushImage(ctx, repository, image)
	if err != nil {
		return nil, err
	}
	appended, err := s.Base(ctx, namespaceUID, reference)
	if err != nil {
		return nil, err
	}
	appended.listed = base.listed
	return appended, nil
}

// Configure pushes an image with a changed configuration, and returns its name by digest.
func (s *Store) Configure(ctx context.Context, namespaceUID string, base *Base, change func(*v1.Config)) (string, error) {
	repository, err := s.repository(namespaceUID)
	if err != nil {
		return "", err
	}
	changed := base.Config.DeepCopy()
	change(changed)
	image, err := mutate.Config(base.image, *changed)
	if err != nil {
		return "", fmt.Errorf("make the image: %w", err)
	}
	return s.pushImage(ctx, repository, image)
}

// pushImage pushes an image whose layers the repository has, and returns its name by digest.
func (s *Store) pushImage(ctx context.Context, repository name.Repository, image v1.Image) (string, error) {
	digest, err := image.Digest()
	if err != nil {
		return "", fmt.Errorf("make the image: %w", err)
	}
	to := repository.Digest(digest.String())
	if err := remote.Write(to, image, s.inside(ctx)...); err != nil {
		return "", fmt.Errorf("push the image: %w", &Failure{err})
	}
	return to.String(), nil
}

// outside returns a transport that connects to no closed address, but to the registries that
// the patterns name with their ports.
func outside(patterns []string, closed egress.Closed) (http.RoundTripper, error) {
	named := map[string]bool{}
	for _, pattern := range patterns {
		host, _, found := strings.Cut(pattern, "/")
		if _, port, err := net.SplitHostPort(host); found && err == nil && port != "" && !strings.Contains(host, "*") {
			named[host] = true
		}
	}
	dialer := &upstream.Dialer{Closed: closed, Resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
		if addr, err := netip.ParseAddr(host); err == nil {
			return []netip.Addr{addr}, nil
		}
		return net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
	}}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil // it would be asked to connect in place of this process, to any address
	t.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		if named[address] {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
		host, text, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, err
		}
		return dialer.Dial(ctx, host, uint16(port), func(netip.Addr) bool { return true })
	}
	return smallManifests{t}, nil
}

// smallManifests is a transport whose manifests have a bound, since they are read into memory
// before anything is judged.
type smallManifests struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t smallManifests) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if err == nil && strings.Contains(r.URL.Path, "/manifests/") {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxManifest)
	}
	return answer, err
}
