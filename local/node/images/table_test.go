package images

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLookupImage(t *testing.T) {
	table := filepath.Join(t.TempDir(), "images.json")
	raw := `{"local/a":{"command":["a"],"digest":"sha256:1"},"local/a:v2":{"command":["a"],"digest":"sha256:2"},"local/empty":{}}`
	if err := os.WriteFile(table, []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]string{
		"local/a": "sha256:1", "local/a:latest": "sha256:1", "local/a:v2": "sha256:2", "local/a@sha256:2": "sha256:2",
		"local/a:v3": "", "local/b": "", "local/a@sha256:3": "", "local/empty": "", "a": "",
	} {
		got, err := Lookup(table, image)
		var unknown *UnknownError
		if got.Digest != want || (want == "") != errors.As(err, &unknown) {
			t.Errorf("%s: got %q, %v", image, got.Digest, err)
		}
	}
	if id := ID("host:5000/a:v2", Entry{Digest: "sha256:2"}); id != "host:5000/a@sha256:2" {
		t.Errorf("image ID %q", id)
	}
}
