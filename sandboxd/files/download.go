package files

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Download serves GET and HEAD /files.
func (s *Service) Download(w http.ResponseWriter, r *http.Request) {
	f, info, err := s.open(r)
	if err != nil {
		fail(w, err)
		return
	}
	defer func() { _ = f.Close() }()
	name := filepath.Base(f.Name())
	h := w.Header()
	h.Set("Vary", "Accept-Encoding")
	if disposition := mime.FormatMediaType("inline", map[string]string{"filename": name}); disposition != "" {
		h.Set("Content-Disposition", disposition)
	}
	if !wantsGzip(r) {
		http.ServeContent(w, r, name, info.ModTime(), f)
		return
	}
	kind := mime.TypeByExtension(filepath.Ext(name))
	if kind == "" {
		kind = "application/octet-stream"
	}
	h.Set("Content-Type", kind)
	h.Set("Last-Modified", info.ModTime().UTC().Format(http.TimeFormat))
	h.Set("Content-Encoding", "gzip")
	packed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is a valid one
	if _, err := io.Copy(packed, f); err != nil {
		panic(http.ErrAbortHandler) // a cut answer must not look like a whole one
	}
	_ = packed.Close()
}

func (s *Service) open(r *http.Request) (*os.File, fs.FileInfo, error) {
	query := r.URL.Query()
	u, err := s.caller.Named(query.Get("username"))
	if err != nil {
		return nil, nil, err
	}
	path, err := s.resolve(u, query.Get("path"))
	if err != nil {
		return nil, nil, err
	}
	f, err := s.opener(r.Context(), u).Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, failure{http.StatusNotFound, fmt.Sprintf("path '%s' does not exist", path)}
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// wantsGzip reports whether the request asks for the whole file and accepts gzip. Ranges and
// conditions refer to the uncompressed file.
func wantsGzip(r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	for _, header := range []string{"Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		if r.Header.Get(header) != "" {
			return false
		}
	}
	for _, line := range r.Header.Values("Accept-Encoding") {
		for option := range strings.SplitSeq(line, ",") {
			coding, parameter, _ := strings.Cut(option, ";")
			if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				continue
			}
			weight, found := strings.CutPrefix(strings.TrimSpace(parameter), "q=")
			q, err := strconv.ParseFloat(weight, 64)
			return !found || err == nil && q > 0
		}
	}
	return false
}
