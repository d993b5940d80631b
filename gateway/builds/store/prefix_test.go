package store

import (
	"errors"
	"strings"
	"testing"
)

// A namespace's repository is below the registry as it was given; on Docker Hub, whose names have
// two parts, it can be below an organisation alone.
func TestRegistries(t *testing.T) {
	for prefix, want := range map[string]string{
		"registry.example/templates": "registry.example/templates/", "registry.example": "registry.example/", "registry.example:5000/a/b": "registry.example:5000/a/b/",
		"docker.io/acme": "index.docker.io/acme/", "index.docker.io/acme": "index.docker.io/acme/", "acme": "index.docker.io/acme/",
		"docker.io/acme/x": "", "acme/x": "", "docker.io": "", "docker.io/library": "", "docker.io/": "", "registry.example/": "", "A": "", "": "",
	} {
		s, err := New(Options{Registry: prefix, Bases: []string{"*"}})
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "the template registry") {
				t.Errorf("%q: %v", prefix, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", prefix, err)
			continue
		}
		if repository, err := s.repository(ns); err != nil || repository.Name() != want+ns {
			t.Errorf("%q: the repository %s, %v, want %s", prefix, repository, err, want+ns)
		}
		if err := s.Allowed(prefix + "/" + other + ":1"); !errors.Is(err, ErrBase) {
			t.Errorf("%q: an image of another namespace: %v", prefix, err)
		}
	}
}
