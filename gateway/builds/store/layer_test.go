package store

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// What is not admitted is not kept: nothing of a base, and of what was changed no image; a layer of
// more bytes than it may have is cut off while it is sent.
func TestNotAdmitted(t *testing.T) {
	bases := serve(t)
	s := newStore(t, bases+"/*")
	push(t, bases+"/base:1", image(t, "linux/amd64", v1.Config{}, map[string]string{"etc/kept": "1"}))
	full := errors.New("full")
	var asked []Layer
	no := func(layers []Layer) error { asked = append(asked, layers...); return full }
	if _, err := s.CopyBase(t.Context(), ns, bases+"/base:1", "", "", no); !errors.Is(err, full) || len(asked) != 1 || asked[0].Size == 0 {
		t.Errorf("asked for %+v: %v", asked, err)
	}
	repository, err := s.repository(ns)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Head(repository.Digest(asked[0].Name)); err == nil {
		t.Error("a layer of a base that was not admitted is kept")
	}
	base, err := s.CopyBase(t.Context(), ns, bases+"/base:1", "", "", anything)
	if err != nil {
		t.Fatal(err)
	}
	archive := tarOf(t, map[string]string{"etc/new": strings.Repeat("3", 1<<16), "~": ""}, map[string]map[string]string{"~": {"SANDLANE.end": "1"}})
	if made, err := s.Append(t.Context(), ns, base, bytes.NewReader(archive), 1<<10, anything); !errors.Is(err, ErrTooLarge) {
		t.Errorf("of too many bytes %+v was made: %v", made, err)
	}
	asked = nil
	if made, err := s.Append(t.Context(), ns, base, bytes.NewReader(archive), 1<<30, no); !errors.Is(err, full) || len(asked) != 1 {
		t.Errorf("asked for %+v; %+v was made: %v", asked, made, err)
	}
}
