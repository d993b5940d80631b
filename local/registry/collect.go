package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Collect removes what nobody needs: manifests that nobody has written or read since a time, and
// keep, by their digest, does not hold, with their tags; then blobs of which the same is true and
// which no manifest of their repository names.
func (r *Registry) Collect(since time.Time, keep func(digest string) bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := map[string]bool{} // by all repositories
	err := filepath.WalkDir(r.path("repositories"), func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || d.Name() != "_blobs" && d.Name() != "_manifests" {
			return err
		}
		if d.Name() == "_manifests" { // _blobs has come before, and has done both
			return fs.SkipDir
		}
		if err := r.collect(filepath.Dir(at), since, keep, held); err != nil {
			return err
		}
		return fs.SkipDir
	})
	if err != nil {
		return fmt.Errorf("collect what nobody needs in the registry: %w", err)
	}
	blobs, err := os.ReadDir(r.path("blobs", "sha256"))
	for _, b := range blobs {
		if !held[b.Name()] {
			err = errors.Join(err, os.Remove(r.path("blobs", "sha256", b.Name())))
		}
	}
	return err
}

// collect is Collect for a repository.
func (r *Registry) collect(repository string, since time.Time, keep func(digest string) bool, held map[string]bool) error {
	named := map[string]bool{} // blobs, by manifests that stay
	manifests, err := entries(filepath.Join(repository, "_manifests"))
	if err != nil {
		return err
	}
	for hex, used := range manifests {
		if used.Before(since) && !keep("sha256:"+hex) {
			if err := os.Remove(filepath.Join(repository, "_manifests", hex)); err != nil {
				return err
			}
			continue
		}
		held[hex] = true
		blobs, err := r.named(hex)
		if err != nil {
			return err
		}
		for _, blob := range blobs {
			named[blob] = true
		}
	}
	tags, err := entries(filepath.Join(repository, "_tags"))
	if err != nil {
		return err
	}
	for tag := range tags {
		digest, err := os.ReadFile(filepath.Join(repository, "_tags", tag))
		if err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(repository, "_manifests", strings.TrimPrefix(string(digest), "sha256:"))); errors.Is(err, fs.ErrNotExist) {
			if err := os.Remove(filepath.Join(repository, "_tags", tag)); err != nil {
				return err
			}
		}
	}
	blobs, err := entries(filepath.Join(repository, "_blobs"))
	if err != nil {
		return err
	}
	for hex, used := range blobs {
		if !named[hex] && used.Before(since) {
			if err := os.Remove(filepath.Join(repository, "_blobs", hex)); err != nil {
				return err
			}
			continue
		}
		held[hex] = true
	}
	return nil
}

// named are the blobs that a manifest names.
func (r *Registry) named(hex string) ([]string, error) {
	text, err := os.ReadFile(r.path("blobs", "sha256", hex))
	if err != nil {
		return nil, err
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("the manifest %s: %w", hex, err)
	}
	var all []string
	for _, blob := range m.blobs() {
		all = append(all, strings.TrimPrefix(blob, "sha256:"))
	}
	return all, nil
}

// entries are the files of a folder, with the times at which they were last written or touched.
func entries(dir string) (map[string]time.Time, error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := map[string]time.Time{}
	for _, e := range list {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		all[e.Name()] = info.ModTime()
	}
	return all, nil
}

// touch notes that something is used now; an error: it is not there.
func (r *Registry) touch(file string) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return os.Chtimes(file, time.Time{}, time.Now())
}
