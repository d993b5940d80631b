package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"aead.dev/minisign"
)

// Write writes the bundle of a build: the files of the cache folder that paths name, with
// slashes. The same files, build and key give the same bytes.
func Write(w io.Writer, cacheDir string, paths []string, build Build, key minisign.PrivateKey) error {
	m := manifest{Version: build.Version, OS: build.OS, Arch: build.Arch}
	for _, path := range paths {
		f, err := describe(cacheDir, path)
		if err != nil {
			return fmt.Errorf("make the bundle: %w", err)
		}
		m.Files = append(m.Files, f)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("make the bundle: %w", err)
	}
	// Without its default comment, which has the time.
	signature := minisign.SignWithComments(key, text, build.String(), "signature of the bundle of "+build.String())
	zipped := gzip.NewWriter(w)
	entries := tar.NewWriter(zipped)
	err = errors.Join(add(entries, manifestFile, int64(len(text)), bytes.NewReader(text)),
		add(entries, signatureFile, int64(len(signature)), bytes.NewReader(signature)))
	for _, f := range m.Files {
		if err == nil {
			err = addFile(entries, filepath.Join(cacheDir, filepath.FromSlash(f.Path)), f)
		}
	}
	if err := errors.Join(err, entries.Close(), zipped.Close()); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	return nil
}

func add(entries *tar.Writer, name string, size int64, from io.Reader) error {
	h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Size: size, Mode: 0o755, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if err := entries.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(entries, from)
	return err
}

func addFile(entries *tar.Writer, path string, f file) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	return add(entries, f.Path, f.Bytes, from)
}

// describe finds size and digest of a file.
func describe(cacheDir, path string) (file, error) {
	from, err := os.Open(filepath.Join(cacheDir, filepath.FromSlash(path)))
	if err != nil {
		return file{}, err
	}
	defer func() { _ = from.Close() }()
	hash := sha256.New()
	n, err := io.Copy(hash, from)
	if err != nil {
		return file{}, err
	}
	return file{Path: path, Bytes: n, SHA256: hex.EncodeToString(hash.Sum(nil))}, nil
}
