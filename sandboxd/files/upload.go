package files

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

	"github.com/sandlane/sandlane/sandboxd/users"
)

// Upload serves POST /files. If one of several files fails, the files before it are stored.
func (s *Service) Upload(w http.ResponseWriter, r *http.Request) {
	entries, err := s.upload(r)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(entries)
}

func (s *Service) upload(r *http.Request) ([]entry, error) {
	u, err := s.caller.Named(r.URL.Query().Get("username"))
	if err != nil {
		return nil, err
	}
	rights := s.opener(r.Context(), u)
	body, err := unpack(r)
	if err != nil {
		return nil, err
	}
	metadata, err := metadataOf(r.Header)
	if err != nil {
		return nil, err
	}
	path := r.URL.Query().Get("path")
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && (kind == "multipart/form-data" || kind == "multipart/mixed") && parameters["boundary"] != "":
		return s.uploadParts(u, rights, path, multipart.NewReader(body, parameters["boundary"]), metadata)
	case err == nil && kind == "application/octet-stream":
		if path == "" {
			return nil, badRequest("the path is required with application/octet-stream")
		}
		written, err := s.store(u, rights, path, body, metadata, nil)
		return []entry{written}, err
	}
	return nil, badRequest("the content type must be multipart/form-data or application/octet-stream")
}

// unpack returns the body of a request without its encoding.
func unpack(r *http.Request) (io.Reader, error) {
	switch encoding := strings.ToLower(r.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, badRequest("the body is not gzip: " + err.Error())
		}
		return unpacked, nil
	default:
		return nil, badRequest(fmt.Sprintf("the content encoding '%s' is not supported", encoding))
	}
}

// uploadParts stores every part that is called file, if any. The part's file name is
// its path, unless the request has one.
func (s *Service) uploadParts(u users.User, rights Opener, path string, parts *multipart.Reader, metadata map[string]string) ([]entry, error) {
	entries, seen := []entry{}, map[string]bool{}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, badRequest("reading the form: " + err.Error())
		}
		if part.FormName() != "file" {
			continue
		}
		target := path
		if path == "" {
			target = fileName(part)
		} else if len(entries) > 0 {
			return nil, badRequest("several files need their own file names instead of one path")
		}
		if target == "" {
			return nil, badRequest("neither a path nor a file name in the request")
		}
		written, err := s.store(u, rights, target, part, metadata, seen)
		if err != nil {
			return nil, err
		}
		entries = append(entries, written)
	}
	return entries, nil
}

// fileName returns the file name of a part with its directories, which part.FileName removes.
func fileName(part *multipart.Part) string {
	_, parameters, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return parameters["filename"]
}
