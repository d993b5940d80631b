package store

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// The layers of a base are read once for a build, however many layers that adds.
func TestLayersAreReadOnce(t *testing.T) {
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	var mu sync.Mutex
	read := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			mu.Lock()
			read[path.Base(r.URL.Path)]++
			mu.Unlock()
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	bases := serve(t)
	s, err := New(Options{Registry: strings.TrimPrefix(server.URL, "http://") + "/templates", Bases: []string{bases + "/*"}, Platform: v1.Platform{OS: "linux", Architecture: "amd64"}})
	if err != nil {
		t.Fatal(err)
	}
	push(t, bases+"/base:1", image(t, "linux/amd64", v1.Config{}, map[string]string{"etc/kept": "1", "etc/gone": "2"}))
	made, err := s.CopyBase(t.Context(), ns, bases+"/base:1", "", "", anything)
	if err != nil {
		t.Fatal(err)
	}
	for i, names := range []string{"kept\x00gone\x00", "kept\x00", "kept\x00"} {
		archive := tarOf(t, map[string]string{"=etc": names, fmt.Sprintf("new%d", i): "x", "~": ""}, map[string]map[string]string{"=etc": {"SANDLANE.names": "1"}, "~": {"SANDLANE.end": "1"}})
		if made, err = s.Append(t.Context(), ns, made, bytes.NewReader(archive), 1<<30, anything); err != nil {
			t.Fatal(err)
		}
	}
	layers, err := made.image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range layers[:3] {
		of, err := l.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if mu.Lock(); read[of.String()] > 1 {
			t.Errorf("layer %d was read %d times", i, read[of.String()])
		}
		mu.Unlock()
	}
	whiteouts := func(of int) (n int) {
		content, err := layers[of].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for r := tar.NewReader(content); ; {
			h, err := r.Next()
			if err != nil {
				return n
			}
			if h.Name == "etc/.wh.gone" {
				n++
			}
		}
	}
	if whiteouts(1) != 0 || whiteouts(2) != 1 || whiteouts(3) != 0 {
		t.Errorf("%d, %d and %d deletions, want one by the second layer alone", whiteouts(1), whiteouts(2), whiteouts(3))
	}
}
