package registry

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// User is the name that clients log in with, beside the token.
const User = "sandlane"

const (
	// maxManifest bounds a manifest, maxBlob a blob, in bytes.
	maxManifest = 4 << 20
	maxBlob     = 32 << 30
)

// Registry serves a folder. It is safe for concurrent use.
type Registry struct {
	dir   string
	token string
	// mu is held by Collect, and shared by what finds or makes entries of repositories: what a
	// client has been told to be there is there for a while.
	mu sync.RWMutex
}

// Open makes the folders below dir, and removes what an earlier process left unfinished. One
// process at a time may use a folder.
func Open(dir, token string) (*Registry, error) {
	if token == "" {
		return nil, errors.New("the registry needs a token")
	}
	r := &Registry{dir: dir, token: token}
	err := os.RemoveAll(r.path("uploads"))
	for _, folder := range []string{"uploads", "blobs/sha256", "repositories"} {
		err = errors.Join(err, os.MkdirAll(r.path(folder), 0o700))
	}
	if err != nil {
		return nil, fmt.Errorf("open the registry: %w", err)
	}
	return r, nil
}

func (r *Registry) path(parts ...string) string {
	return filepath.Join(append([]string{r.dir}, parts...)...)
}

// A path of the API: /v2/NAME/KIND/REFERENCE. A name has no part that begins with a dot or an
// underscore, so it is a path below repositories.
var (
	pathPattern   = regexp.MustCompile(`^/v2/([a-z0-9]+(?:[._-][a-z0-9]+)*(?:/[a-z0-9]+(?:[._-][a-z0-9]+)*)*)/(blobs/uploads|blobs|manifests)/([A-Za-z0-9_][A-Za-z0-9_.:-]{0,200})?$`)
	digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	tagPattern    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
)

// failure is an answer of the API's form.
type failure struct {
	status int
	code   string
}

func (f *failure) Error() string { return f.code }

var (
	errUnknown = &failure{http.StatusNotFound, "BLOB_UNKNOWN"}
	errDigest  = &failure{http.StatusBadRequest, "DIGEST_INVALID"}
	errUpload  = &failure{http.StatusNotFound, "BLOB_UPLOAD_UNKNOWN"}
	errMethod  = &failure{http.StatusMethodNotAllowed, "UNSUPPORTED"}
	errInvalid = &failure{http.StatusBadRequest, "MANIFEST_INVALID"}
	errLarge   = &failure{http.StatusRequestEntityTooLarge, "SIZE_INVALID"}
)

// Handler serves the API.
func (r *Registry) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		user, token, _ := q.BasicAuth()
		if user != User || subtle.ConstantTimeCompare([]byte(token), []byte(r.token)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="sandlane"`)
			answer(w, &failure{http.StatusUnauthorized, "UNAUTHORIZED"})
			return
		}
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		if q.URL.Path == "/v2/" {
			w.WriteHeader(http.StatusOK)
			return
		}
		parts := pathPattern.FindStringSubmatch(q.URL.Path)
		if parts == nil {
			answer(w, &failure{http.StatusNotFound, "NAME_INVALID"})
			return
		}
		if err := r.serve(w, q, parts[1], parts[2], parts[3]); err != nil {
			answer(w, err)
		}
	})
}

// answer writes an error.
func answer(w http.ResponseWriter, err error) {
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{http.StatusInternalServerError, "UNKNOWN"}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": f.code, "message": err.Error()}}})
}

func (r *Registry) serve(w http.ResponseWriter, q *http.Request, name, kind, ref string) error {
	read := q.Method == http.MethodGet || q.Method == http.MethodHead
	switch {
	case kind == "blobs" && read:
		return r.getBlob(w, q, name, ref)
	case kind == "manifests" && read:
		return r.getManifest(w, q, name, ref)
	case kind == "manifests" && q.Method == http.MethodPut:
		return r.putManifest(w, q, name, ref)
	case kind == "blobs/uploads" && ref == "" && q.Method == http.MethodPost:
		return r.begin(w, name)
	case kind == "blobs/uploads" && ref != "" && (q.Method == http.MethodPatch || q.Method == http.MethodPut):
		return r.upload(w, q, name, ref)
	}
	return errMethod
}

func (r *Registry) blob(digest string) string {
	return r.path("blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
}

func (r *Registry) inRepository(name, kind, of string) string {
	return r.path("repositories", name, "_"+kind, strings.TrimPrefix(of, "sha256:"))
}

func (r *Registry) getBlob(w http.ResponseWriter, q *http.Request, name, digest string) error {
	if !digestPattern.MatchString(digest) {
		return errDigest
	}
	if r.touch(r.inRepository(name, "blobs", digest)) != nil {
		return errUnknown
	}
	return serveFile(w, q, r.blob(digest), digest, "application/octet-stream")
}

func serveFile(w http.ResponseWriter, q *http.Request, file, digest, kind string) error {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return errUnknown
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Type", kind)
	http.ServeContent(w, q, "", info.ModTime(), f)
	return nil
}

func (r *Registry) getManifest(w http.ResponseWriter, q *http.Request, name, ref string) error {
	digest := ref
	if !digestPattern.MatchString(ref) {
		text, err := os.ReadFile(r.inRepository(name, "tags", ref))
		if err != nil || !tagPattern.MatchString(ref) {
			return &failure{http.StatusNotFound, "MANIFEST_UNKNOWN"}
		}
		digest = string(text)
	}
	file := r.inRepository(name, "manifests", digest)
	kind, err := os.ReadFile(file)
	if err != nil || r.touch(file) != nil {
		return &failure{http.StatusNotFound, "MANIFEST_UNKNOWN"}
	}
	return serveFile(w, q, r.blob(digest), digest, string(kind))
}

// putManifest keeps a manifest, and gives it the tag if it is not put by digest. What it names
// must be in the repository.
func (r *Registry) putManifest(w http.ResponseWriter, q *http.Request, name, ref string) error {
	content, err := io.ReadAll(io.LimitReader(q.Body, maxManifest+1))
	if err != nil {
		return err
	}
	if len(content) > maxManifest {
		return errLarge
	}
	sum := sha256.Sum256(content)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	byDigest := strings.Contains(ref, ":")
	if byDigest && ref != digest || !byDigest && !tagPattern.MatchString(ref) {
		return errDigest
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if err := r.complete(name, content); err != nil {
		return err
	}
	err = errors.Join(
		r.write(r.blob(digest), bytes.NewReader(content)),
		r.write(r.inRepository(name, "manifests", digest), strings.NewReader(q.Header.Get("Content-Type"))))
	if err == nil && !byDigest {
		err = r.write(r.inRepository(name, "tags", ref), strings.NewReader(digest))
	}
	if err != nil {
		return err
	}
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Location", "/v2/"+name+"/manifests/"+digest)
	w.WriteHeader(http.StatusCreated)
	return nil
}

// manifest is what a manifest names.
type manifest struct {
	Config struct{ Digest string }
	Layers []struct{ Digest string }
}

func (m *manifest) blobs() []string {
	all := []string{m.Config.Digest}
	for _, l := range m.Layers {
		all = append(all, l.Digest)
	}
	return all
}

// complete refuses a manifest whose blobs the repository has not got.
func (r *Registry) complete(name string, content []byte) error {
	var m manifest
	if err := json.Unmarshal(content, &m); err != nil || m.Config.Digest == "" {
		return errInvalid
	}
	for _, blob := range m.blobs() {
		if !digestPattern.MatchString(blob) {
			return errInvalid
		}
		if _, err := os.Stat(r.inRepository(name, "blobs", blob)); err != nil {
			return &failure{http.StatusBadRequest, "MANIFEST_BLOB_UNKNOWN"}
		}
	}
	return nil
}

// write makes a file in one step.
func (r *Registry) write(file string, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	unfinished, err := os.OpenFile(r.path("uploads", "."+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(unfinished, content)
	err = errors.Join(err, unfinished.Sync(), unfinished.Close())
	if err == nil {
		err = os.Rename(unfinished.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(unfinished.Name()))
	}
	return nil
}
