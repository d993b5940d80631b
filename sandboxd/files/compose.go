package files

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"

	"golang.org/x/sys/unix"

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
	sources, err := s.sources(u, body.SourcePaths)
	if err != nil {
		return entry{}, err
	}
	joined := &files{user: u, paths: sources}
	defer joined.close()
	written, err := s.store(u, destination, joined, metadataOf(r.Header), nil)
	if err != nil {
		return entry{}, err
	}
	if err := u.Act(func() error { return removeBut(destination, sources) }); err != nil {
		return entry{}, err
	}
	return written, nil
}

// removeBut removes the sources of a file that was composed.
func removeBut(destination string, sources []string) error {
	target, err := follow(destination)
	if err != nil {
		return err
	}
	for _, path := range sources {
		if source, err := follow(path); err == nil && source == target {
			continue // the result itself, perhaps by way of a link
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// sources resolves the paths and checks that the user may read all before any is read.
func (s *Service) sources(u users.User, asked []string) ([]string, error) {
	paths := make([]string, 0, len(asked))
	for _, path := range asked {
		path, err := s.resolve(u, path)
		if err != nil {
			return nil, err
		}
		f, err := openRegular(u, path, unix.O_RDONLY)
		if err != nil {
			return nil, err
		}
		_ = f.Close()
		paths = append(paths, path)
	}
	return paths, nil
}

// files reads one file after the other, with one open at a time.
type files struct {
	user  users.User
	paths []string
	open  *os.File
}

// Read implements io.Reader.
func (f *files) Read(p []byte) (int, error) {
	for {
		if f.open == nil {
			if len(f.paths) == 0 {
				return 0, io.EOF
			}
			opened, err := openRegular(f.user, f.paths[0], unix.O_RDONLY)
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
