// Package trust makes the programs of a sandbox trust an authority beside those of its image:
// egress's own, whose certificates hosts with rules show (docs/egress.md). New makes a Store;
// package sandboxd calls Add with what a gateway sends, and Env for the variables of a
// command.
//
// The authority is appended to the image's bundle, which programs of the system read, and is
// in three files of the store's folder: one with both, which variables name that replace a
// program's own list, the same for Java, and one alone, for those that add to it. A pod that gets the files of
// another has the first already; a bundle is written anew beside it and renamed, so that no
// program reads half of it.
//
// It trusts nothing for sandboxd itself, and takes nothing away: a sandbox whose rules are
// gone keeps the authority until its end.
package trust

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// bundles are where distributions have the authorities of the system; the first that is there
// is the image's.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine
	"/etc/pki/tls/certs/ca-bundle.crt",   // Red Hat
	"/etc/ssl/ca-bundle.pem",             // SUSE
	"/etc/ssl/cert.pem",                  // Alpine without its tool
}

// The files of the store's folder.
const (
	both  = "authorities.pem"
	added = "egress.pem"
	java  = "authorities.jks"
)

// javaOptions is the variable with options of every Java program.
const javaOptions = "JAVA_TOOL_OPTIONS"

// Store keeps what was added. It is safe for concurrent use.
type Store struct {
	// Image is the folder with the image's files; empty is /. For tests.
	Image string
	// Java is what the image has in JAVA_TOOL_OPTIONS.
	Java string

	dir string // of the files; empty writes none

	mu  sync.Mutex
	env map[string]string // guarded by mu
}

// New returns a store that has added nothing. The folder is made with the first file.
func New(dir string) *Store { return &Store{dir: dir} }

// maxBundle bounds a bundle; those of distributions have a quarter of a megabyte.
const maxBundle = 16 << 20

var errBundle = errors.New("their file is none, or too long")

// ErrNoCertificate is what has no certificate of an authority, or something else too.
var ErrNoCertificate = errors.New("it is no list of authorities' certificates")

// Add makes programs that begin from now on trust the authorities, which are PEM. It may be
// repeated. An image without a bundle has only programs with lists of their own: those get
// the authority where they add to their list, and no variable replaces it.
func (s *Store) Add(authorities []byte) error {
	if err := check(authorities); err != nil {
		return err
	}
	if s.dir == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of authorities: %w", err)
	}
	alone := filepath.Join(s.dir, added)
	if err := replace(alone, authorities); err != nil {
		return err
	}
	env := map[string]string{"NODE_EXTRA_CA_CERTS": alone}
	path, image, err := s.bundle()
	if err != nil {
		return err
	}
	if path != "" {
		if !bytes.Contains(image, authorities) {
			image = join(image, authorities)
			_ = replace(path, image) // it may be read-only: the variables do for most programs
		}
		all := filepath.Join(s.dir, both)
		if err := replace(all, image); err != nil {
			return err
		}
		for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"} {
			env[name] = all
		}
		store := filepath.Join(s.dir, java) // also without a Java, which a user may install
		if err := replace(store, keyStore(image)); err != nil {
			return err
		}
		env[javaOptions] = strings.TrimSpace(s.Java + " -Djavax.net.ssl.trustStore=" + store + " -Djavax.net.ssl.trustStoreType=jks")
	}
	s.env = env
	return nil
}

// Env returns the variables that commands get; the caller does not change them.
func (s *Store) Env() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.env
}

// bundle returns the image's bundle; an empty path if it has none.
func (s *Store) bundle() (path string, text []byte, err error) {
	for _, path := range bundles {
		path, err := filepath.EvalSymlinks(filepath.Join("/", s.Image, path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var is fs.FileInfo
		if err == nil {
			is, err = os.Stat(path)
		}
		switch {
		case err != nil:
		case !is.Mode().IsRegular() || is.Size() > maxBundle: // a program of the sandbox has put it there
			err = errBundle
		default:
			text, err = os.ReadFile(path)
		}
		if err != nil {
			return "", nil, fmt.Errorf("read the image's authorities: %w", err)
		}
		return path, text, nil
	}
	return "", nil, nil
}

// check refuses what is not all certificates of authorities.
func check(text []byte) error {
	n := 0
	for rest := bytes.TrimSpace(text); len(rest) > 0; n++ {
		block, after := pem.Decode(rest)
		if block == nil || block.Type != "CERTIFICATE" {
			return ErrNoCertificate
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err != nil || !cert.IsCA {
			return ErrNoCertificate
		}
		rest = bytes.TrimSpace(after)
	}
	if n == 0 {
		return ErrNoCertificate
	}
	return nil
}

// join appends with a line's end between.
func join(image, authorities []byte) []byte {
	image = bytes.TrimRight(image, "\n")
	return append(append(append([]byte(nil), image...), '\n'), authorities...)
}

// replace writes a file beside its place and renames it, which every user may read.
func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".sandboxd-")
	if err != nil {
		return fmt.Errorf("write authorities: %w", err)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write authorities: %w", err)
	}
	return nil
}
