package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"

	"github.com/sandlane/sandlane/sandboxd/users"
)

const maxComposeBody = 1 << 20

// Compose serves POST /files/compose: it joins files into one, in their order,
// and removes them after that.
func (s *Service) Compose(w http.ResponseWriter, r *http.Request) {
	written, err := s.compose(w, r)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(written)
}

func (s *Service) compose(w http.ResponseWriter, r *http.Request) (entry, error) {
	var body struct {
		SourcePaths []string `json:"source_paths"`
		Destination string   `json:"destination"`
		Username    string   `json:"username"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxComposeBody)).Decode(&body); err != nil {
		return entry{}, badRequest("invalid body: " + err.Error())
	}
	if len(body.SourcePaths) == 0 || body.Destination == "" {
		return entry{}, badRequest("source_paths and destination are required")
	}
	u, err := s.caller.Named(body.Username)
	if err != nil {
		return entry{}, err
	}
	destination, err := s.resolve(u, body.Destination)
	if err != nil {
		return entry{}, err
	}
	metadata, err := metadataOf(r.Header)
	if err != nil {
		return entry{}, err
	}
	rights := s.opener(r.Context(), u)
	sources, err := s.sources(u, rights, body.SourcePaths, destination)
	if err != nil {
		return entry{}, err
	}
	joined := &files{rights: rights, paths: sources}
	defer joined.close()
	written, err := s.store(u, rights, destination, joined, metadata, nil)
	if err != nil {
		return entry{}, err
	}
	if err := rights.Remove(sources); err != nil {
		return entry{}, err
	}
	return written, nil
}

// sources resolves the paths. Before any file is read, it checks that the user may read all
// of them and that none is the destination, also under another name: the destination is
// emptied before it is filled.
func (s *Service) sources(u users.User, rights Opener, asked []string, destination string) ([]string, error) {
	var target fs.FileInfo // nil if there is none, or none that the user may see
	if f, err := rights.Find(destination); err == nil {
		target, err = f.Stat()
		_ = f.Close()
		if err != nil {
			return nil, err
		}
	}
	paths := make([]string, 0, len(asked))
	for _, path := range asked {
		resolved, err := s.resolve(u, path)
		if err != nil {
			return nil, err
		}
		f, err := rights.Read(resolved)
		if err != nil {
			return nil, err
		}
		source, err := f.Stat()
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		if resolved == destination || target != nil && os.SameFile(source, target) {
			return nil, badRequest(fmt.Sprintf("source path '%s' cannot be the same as destination", path))
		}
		paths = append(paths, resolved)
	}
	return paths, nil
}

// files reads one file after the other, with one open at a time.
type files struct {
	rights Opener
	paths  []string
	open   *os.File
}

// Read implements io.Reader.
func (f *files) Read(p []byte) (int, error) {
	for {
		if f.open == nil {
			if len(f.paths) == 0 {
				return 0, io.EOF
			}
			opened, err := f.rights.Read(f.paths[0])
			if err != nil {
				return 0, err
			}
			f.open, f.paths = opened, f.paths[1:]
		}
		n, err := f.open.Read(p)
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		f.close()
	}
}

func (f *files) close() {
	if f.open != nil {
		_ = f.open.Close()
		f.open = nil
	}
}
