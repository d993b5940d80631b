package registry

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// begin makes an upload. A mount that is asked for is not made: the client uploads then.
func (r *Registry) begin(w http.ResponseWriter, name string) error {
	id := rand.Text()
	f, err := os.OpenFile(r.path("uploads", id), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v2/"+name+"/blobs/uploads/"+id)
	w.Header().Set("Range", "0-0")
	w.WriteHeader(http.StatusAccepted)
	return f.Close()
}

// upload adds a part to an upload, and with PUT ends it.
func (r *Registry) upload(w http.ResponseWriter, q *http.Request, name, id string) error {
	if strings.ContainsAny(id, ".:") {
		return errUpload
	}
	f, err := os.OpenFile(r.path("uploads", id), os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return errUpload
	}
	defer func() { _ = f.Close() }() // Sync has told what went wrong
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(q.Body, maxBlob-size+1))
	if err != nil { // what pushes here begins anew
		return errors.Join(err, os.Remove(f.Name()))
	}
	if size += n; size > maxBlob {
		return errors.Join(errLarge, os.Remove(f.Name()))
	}
	if q.Method == http.MethodPatch {
		w.Header().Set("Location", q.URL.Path)
		w.Header().Set("Range", fmt.Sprintf("0-%d", max(size-1, 0)))
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	digest := q.URL.Query().Get("digest")
	if err := r.end(f, name, digest); err != nil {
		return err
	}
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Location", "/v2/"+name+"/blobs/"+digest)
	w.WriteHeader(http.StatusCreated)
	return nil
}

// end makes a blob of an upload, if it has the digest.
func (r *Registry) end(f *os.File, name, digest string) error {
	if !digestPattern.MatchString(digest) {
		return errDigest
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if "sha256:"+hex.EncodeToString(h.Sum(nil)) != digest {
		return errors.Join(errDigest, os.Remove(f.Name()))
	}
	if err := f.Sync(); err != nil {
		return err
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if err := os.Rename(f.Name(), r.blob(digest)); err != nil {
		return err
	}
	return r.write(r.inRepository(name, "blobs", digest), strings.NewReader(""))
}
