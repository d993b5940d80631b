package hack_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"aead.dev/minisign"

	"github.com/sandlane/sandlane/local/bundle"
)

// keyOfStandIn has this test's program stand in for a sandlane with that key compiled in.
const keyOfStandIn = "SANDLANE_TEST_STAND_IN"

func TestMain(m *testing.M) {
	if text := os.Getenv(keyOfStandIn); text != "" {
		key, err := bundle.ParseKey([]byte(text))
		if err == nil && strings.Join(os.Args[1:3], " ") == "bundle verify" {
			err = bundle.Verify(os.Args[3], key, os.Args[4:]...)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// served is a release's folder as install.sh sees it.
type served struct {
	t       *testing.T
	dir     string
	program string // its name
	script  string // install.sh of this release
	key     minisign.PublicKey
	sign    minisign.PrivateKey
	url     string
}

func newServed(t *testing.T) *served {
	t.Helper()
	s := &served{t: t, dir: t.TempDir(), program: "sandlane-linux-" + runtime.GOARCH, script: filepath.Join(t.TempDir(), "install.sh")}
	var err error
	if s.key, s.sign, err = minisign.GenerateKey(rand.Reader); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	s.write(s.program, program)
	s.signSums(s.sign)
	script, err := os.ReadFile("install.sh")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(script, []byte("\n")); n > 60 {
		t.Errorf("install.sh has %d lines, and nobody reads more than 60", n)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(program))
	text := strings.NewReplacer("@VERSION@", "v1.2.3", "@KEY@", s.key.String(), "@SUM_AMD64@", sum, "@SUM_ARM64@", sum).Replace(string(script))
	if err := os.WriteFile(s.script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(s.dir)))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *served) write(name string, content []byte) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), content, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *served) read(name string) []byte {
	s.t.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return content
}

func (s *served) signSums(key minisign.PrivateKey) {
	sums := fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(s.read(s.program)), s.program)
	s.write(bundle.SumsFile, sums)
	s.write(bundle.SumsSignature, minisign.Sign(key, sums))
}

// install runs the script, and returns what it printed and left in the home.
func (s *served) install(path string, shell ...string) (out string, left []string, err error) {
	home := s.t.TempDir()
	cmd := exec.CommandContext(s.t.Context(), shell[0], append(shell[1:], s.script, s.url+"/")...)
	cmd.Env = []string{"HOME=" + home, "PATH=" + path, keyOfStandIn + "=" + s.key.String()}
	raw, err := cmd.CombinedOutput()
	entries, readErr := os.ReadDir(filepath.Join(home, ".local", "bin"))
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	return string(raw), left, errors.Join(err, readErr)
}

// shells are those of this machine, each with the programs that go with it.
func shells(t *testing.T) map[string]func(*served) (string, []string, error) {
	t.Helper()
	found := map[string]func(*served) (string, []string, error){}
	for _, name := range []string{"sh", "dash", "bash"} {
		if shell, err := exec.LookPath(name); err == nil {
			found[name] = func(s *served) (string, []string, error) { return s.install(os.Getenv("PATH"), shell) }
		}
	}
	if busybox, err := exec.LookPath("busybox"); err == nil {
		applets := t.TempDir() // without curl or minisign
		if out, err := exec.CommandContext(t.Context(), busybox, "--install", "-s", applets).CombinedOutput(); err != nil {
			t.Fatalf("busybox --install: %v\n%s", err, out)
		}
		found["busybox"] = func(s *served) (string, []string, error) { return s.install(applets, busybox, "sh") }
	}
	if len(found) == 0 {
		t.Fatal("this machine has no shell")
	}
	return found
}

// install.sh installs a release of its publisher without root, and of another nothing: not of
// a program with another sum, whatever sums and signatures the server has for it.
func TestInstall(t *testing.T) {
	for name, install := range shells(t) {
		t.Run(name, func(t *testing.T) {
			s := newServed(t)
			out, left, err := install(s)
			if err != nil || strings.Join(left, " ") != "sandlane" || !strings.Contains(out, "up --bundle "+s.url) {
				t.Fatalf("%v, left %q\n%s", err, left, out)
			}
			program, sums, signature := s.read(s.program), s.read(bundle.SumsFile), s.read(bundle.SumsSignature)
			_, stranger, err := minisign.GenerateKey(rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			flipped := func(content []byte, at int) []byte {
				changed := bytes.Clone(content)
				changed[at] ^= 1
				return changed
			}
			for what, change := range map[string]func(){
				"a byte of the program":                      func() { s.write(s.program, flipped(program, len(program)/2)) },
				"the program, its sum and its signature":     func() { s.write(s.program, flipped(program, len(program)-1)); s.signSums(stranger) },
				"a byte of the sums":                         func() { s.write(bundle.SumsFile, flipped(sums, 0)) },
				"a byte of the signature":                    func() { s.write(bundle.SumsSignature, flipped(signature, len(signature)/2)) },
				"the sums' signature, by a stranger":         func() { s.signSums(stranger) },
				"no signature":                               func() { _ = os.Remove(filepath.Join(s.dir, bundle.SumsSignature)) },
				"half of the program":                        func() { s.write(s.program, program[:len(program)/2]) },
				"a program with the publisher's own new sum": func() { s.write(s.program, []byte("#!/bin/sh\n")); s.signSums(s.sign) },
			} {
				change()
				if out, left, err := install(s); err == nil || len(left) > 0 || !strings.Contains(out, "install: ") {
					t.Errorf("%s: %v, left %q\n%s", what, err, left, out)
				}
				s.write(s.program, program)
				s.write(bundle.SumsFile, sums)
				s.write(bundle.SumsSignature, signature)
			}
		})
	}
}
