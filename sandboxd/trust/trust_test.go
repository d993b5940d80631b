package trust

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandlane/sandlane/test/certs"
)

// image makes a store whose image has the bundle; nil: it has none.
func image(t *testing.T, bundle []byte) (s *Store, path string) {
	t.Helper()
	root := t.TempDir()
	s = New(filepath.Join(root, "run"))
	s.Image = root
	path = filepath.Join(root, "etc/ssl/certs/ca-certificates.crt")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if bundle != nil {
		if err := os.WriteFile(path, bundle, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return s, path
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Programs of the image trust the authority beside the image's own, however often it is added.
func TestAdd(t *testing.T) {
	own, egress := certs.New(t).PEM(), certs.New(t).PEM()
	s, path := image(t, bytes.TrimRight(own, "\n"))
	if len(s.Env()) != 0 {
		t.Errorf("before: %v", s.Env())
	}
	for range 2 {
		if err := s.Add(egress); err != nil {
			t.Fatal(err)
		}
		want := string(own) + string(egress)
		env := s.Env()
		for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"} {
			if got := string(read(t, env[name])); got != want {
				t.Errorf("%s has %d bytes, want %d", name, len(got), len(want))
			}
		}
		if got := read(t, env["NODE_EXTRA_CA_CERTS"]); !bytes.Equal(got, egress) {
			t.Errorf("for Node: %s", got)
		}
		if got := string(read(t, path)); got != want {
			t.Errorf("the image's bundle has %d bytes, want %d", len(got), len(want))
		}
		is, err := os.Stat(env["SSL_CERT_FILE"])
		if err != nil || is.Mode().Perm() != 0o644 {
			t.Errorf("%v, %v", is, err)
		}
	}
}

// Without a bundle no variable takes a program's own list away.
func TestAddToNoBundle(t *testing.T) {
	s, _ := image(t, nil)
	if err := s.Add(certs.New(t).PEM()); err != nil {
		t.Fatal(err)
	}
	if env := s.Env(); len(env) != 1 || env["NODE_EXTRA_CA_CERTS"] == "" {
		t.Errorf("%v", env)
	}
}

// What a program of the sandbox puts in the bundle's place neither hangs nor fills sandboxd.
func TestBundleThatIsNone(t *testing.T) {
	s, path := image(t, nil)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(certs.New(t).PEM()); !errors.Is(err, errBundle) {
		t.Errorf("a pipe: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, maxBundle+1); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(certs.New(t).PEM()); !errors.Is(err, errBundle) {
		t.Errorf("too long: %v", err)
	}
}

func TestAddRefuses(t *testing.T) {
	authority := certs.New(t)
	leaf, key := authority.Issue(t, certs.Leaf{Names: []string{"a.example"}})
	s, path := image(t, authority.PEM())
	for what, text := range map[string]string{
		"nothing": "", "no PEM": "hello", "a key": string(key), "no authority": string(leaf), "something behind": string(authority.PEM()) + "x",
		"a broken one": strings.Replace(string(authority.PEM()), "MII", "AAA", 1),
	} {
		if err := s.Add([]byte(text)); !errors.Is(err, ErrNoCertificate) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if len(s.Env()) != 0 || !bytes.Equal(read(t, path), authority.PEM()) {
		t.Error("what was refused has changed something")
	}
}
