package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"aead.dev/minisign"
)

const (
	// SumsFile has the SHA-256 of each file of a release's folder, as sha256sum prints them.
	SumsFile = "SHA256SUMS"
	// SumsSignature is its signature, in minisign's format.
	SumsSignature = SumsFile + ".minisig"
)

// Verify checks a release's folder: the signature of its sums first, then the sums of the
// files named below it, with slashes. Without names it checks all files, and that there are no
// others.
func Verify(dir string, key minisign.PublicKey, names ...string) error {
	text, err := os.ReadFile(filepath.Join(dir, SumsFile))
	if err != nil {
		return fmt.Errorf("read the release's sums: %w", err)
	}
	signature, err := os.ReadFile(filepath.Join(dir, SumsSignature))
	if err != nil {
		return fmt.Errorf("read the signature of the release's sums: %w", err)
	}
	if !minisign.Verify(key, text, signature) {
		return fmt.Errorf("%s is not signed by this key, or was changed since: take the release anew", SumsFile)
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || !filepath.IsLocal(filepath.FromSlash(name)) {
			return fmt.Errorf("%s has a line %q that names no file of the folder", SumsFile, line)
		}
		sums[name] = sum
	}
	if len(names) == 0 {
		if names, err = filesOf(dir, sums); err != nil {
			return fmt.Errorf("read the release's folder: %w", err)
		}
	}
	for _, name := range names {
		want, ok := sums[name]
		if !ok {
			return fmt.Errorf("%s does not know %s: remove it, or take the release anew", SumsFile, name)
		}
		if err := sumIs(filepath.Join(dir, filepath.FromSlash(name)), want); err != nil {
			return fmt.Errorf("check %s of the release: %w", name, err)
		}
	}
	return nil
}

// filesOf returns the files that a folder has or should have.
func filesOf(dir string, sums map[string]string) (names []string, err error) {
	for name := range sums {
		names = append(names, name)
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if _, listed := sums[name]; !listed && name != SumsFile && name != SumsSignature {
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

// sumIs checks a plain file's SHA-256.
func sumIs(path, want string) (err error) {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, errors.New("it is no plain file"))
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return err
	}
	wanted, err := hex.DecodeString(want)
	if err != nil || !bytes.Equal(hash.Sum(nil), wanted) {
		return fmt.Errorf("its SHA-256 is %x and should be %s: take it anew", hash.Sum(nil), want)
	}
	return nil
}
