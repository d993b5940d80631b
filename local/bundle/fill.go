package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"aead.dev/minisign"
)

// Options of Fill. From, Key and Build are needed.
type Options struct {
	// From is a bundle's file, or a folder that has it by its name; a path or an http(s) URL.
	From string
	// Key is the publisher's.
	Key minisign.PublicKey
	// Build is what the bundle must be for.
	Build Build
	// CacheDir is the cache folder; empty: "sandlane" in the user's.
	CacheDir string
	// Progress is called with one line for each step; nil: not called.
	Progress func(line string)
}

// Fill puts the programs of a bundle into the cache, if they are not there from the same bundle.
// It is safe beside other processes that do so.
func Fill(ctx context.Context, o Options) error {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.CacheDir == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("no cache folder for the bundle (set $HOME or $XDG_CACHE_HOME): %w", err)
		}
		o.CacheDir = filepath.Join(dir, "sandlane")
	}
	from, err := open(ctx, &o)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	unzipped, err := gzip.NewReader(from)
	if err != nil {
		return fmt.Errorf("read the bundle %s: %w", o.From, err)
	}
	entries := tar.NewReader(unzipped)
	text, err := small(entries, manifestFile)
	if err != nil {
		return err
	}
	signature, err := small(entries, signatureFile)
	if err != nil {
		return err
	}
	m, err := read(text, signature, o.Key, o.Build)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(text)
	mark := filepath.Join(o.CacheDir, "bundles", hex.EncodeToString(digest[:]))
	if there(mark, m, o.CacheDir) {
		return nil
	}
	began := time.Now()
	o.Progress(fmt.Sprintf("unpacking %d programs of the bundle", len(m.Files)))
	for _, f := range m.Files {
		header, err := entries.Next()
		if err != nil {
			return fmt.Errorf("the bundle ends before %s: %w", f.Path, err)
		}
		if header.Name != f.Path || header.Size != f.Bytes || header.Typeflag != tar.TypeReg {
			return fmt.Errorf("the bundle has %q of %d bytes where its manifest says %q of %d", header.Name, header.Size, f.Path, f.Bytes)
		}
		if err := take(entries, f, filepath.Join(o.CacheDir, filepath.FromSlash(f.Path))); err != nil {
			return fmt.Errorf("take %s from the bundle: %w", f.Path, err)
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(mark), 0o755), os.WriteFile(mark, nil, 0o644)); err != nil {
		return fmt.Errorf("note that the bundle is unpacked: %w", err)
	}
	o.Progress(fmt.Sprintf("the bundle is unpacked after %s", time.Since(began).Round(100*time.Millisecond)))
	return nil
}

// there reports whether the files of a bundle that was unpacked before still are.
func there(mark string, m *manifest, cache string) bool {
	if _, err := os.Stat(mark); err != nil {
		return false
	}
	for _, f := range m.Files {
		if info, err := os.Stat(filepath.Join(cache, filepath.FromSlash(f.Path))); err != nil || info.Size() != f.Bytes {
			return false
		}
	}
	return true
}

// small reads the next file, which must have the name.
func small(entries *tar.Reader, name string) ([]byte, error) {
	header, err := entries.Next()
	if err != nil {
		return nil, fmt.Errorf("this is no bundle: it has no %s: %w", name, err)
	}
	if header.Name != name || header.Size > maxManifest {
		return nil, fmt.Errorf("this is no bundle: it has %q of %d bytes where %s should be", header.Name, header.Size, name)
	}
	text, err := io.ReadAll(entries)
	if err != nil {
		return nil, fmt.Errorf("read %s of the bundle: %w", name, err)
	}
	return text, nil
}

const (
	// unfinishedPrefix begins the name of a program that is being unpacked.
	unfinishedPrefix = ".bundle-"
	// unfinishedFor is how long such a file may be unchanged before a later unpacking takes it
	// for that of a process that was killed; a download that stands still is given up sooner.
	unfinishedFor = time.Hour
)

// removeLeft removes what killed processes left in a folder of the cache. What cannot be
// removed stays: it is in nobody's way.
func removeLeft(dir string) {
	left, err := filepath.Glob(filepath.Join(dir, unfinishedPrefix+"*"))
	if err != nil {
		return
	}
	for _, name := range left {
		if info, err := os.Lstat(name); err == nil && time.Since(info.ModTime()) > unfinishedFor {
			_ = os.Remove(name)
		}
	}
}

// take writes a program and gives it its name once its digest is right.
func take(from io.Reader, f file, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	removeLeft(filepath.Dir(to))
	unfinished, err := os.CreateTemp(filepath.Dir(to), unfinishedPrefix)
	if err != nil {
		return err
	}
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(unfinished, hash), from)
	err = errors.Join(err, unfinished.Chmod(0o755), unfinished.Close())
	if got := hex.EncodeToString(hash.Sum(nil)); err == nil && got != f.SHA256 {
		err = fmt.Errorf("its SHA-256 is %s, and the manifest says %s", got, f.SHA256)
	}
	if err == nil {
		err = os.Rename(unfinished.Name(), to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(unfinished.Name()))
	}
	return nil
}

// open opens the file that From names.
func open(ctx context.Context, o *Options) (io.ReadCloser, error) {
	if !strings.HasPrefix(o.From, "http://") && !strings.HasPrefix(o.From, "https://") {
		if info, err := os.Stat(o.From); err == nil && info.IsDir() {
			o.From = filepath.Join(o.From, o.Build.Name())
		}
		f, err := os.Open(o.From)
		if err != nil {
			return nil, fmt.Errorf("open the bundle: %w", err)
		}
		return f, nil
	}
	at, err := url.Parse(o.From)
	if err != nil {
		return nil, fmt.Errorf("the bundle's URL: %w", err)
	}
	if !strings.HasSuffix(at.Path, ".tar.gz") {
		at.Path = path.Join(at.Path, "/", o.Build.Name())
	}
	o.From = at.Redacted()
	ctx, cancel := context.WithCancelCause(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("the bundle's URL: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = answerWithin
	transport.DisableKeepAlives = true // there is one request
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("download the bundle: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		cancel(nil)
		return nil, fmt.Errorf("download the bundle %s: %s", o.From, resp.Status)
	}
	o.Progress(fmt.Sprintf("downloading the bundle %s (%d MB)", o.From, resp.ContentLength>>20))
	return &told{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, total: resp.ContentLength, at: time.Now(), progress: o.Progress}, nil
}

// answerWithin is how long a server may take until its answer begins, and each time until it
// goes on.
const answerWithin = 30 * time.Second

var errStalled = fmt.Errorf("the server sent nothing for %v: try again, or name a file that you have downloaded", answerWithin)

// tellEvery is the time between two lines about a download.
const tellEvery = 5 * time.Second

// told says how far a download is, and ends one that stands still.
type told struct {
	io.ReadCloser
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc

	done, total int64
	at          time.Time
	progress    func(string)
}

// Read implements io.Reader.
func (t *told) Read(p []byte) (int, error) {
	timer := time.AfterFunc(answerWithin, func() { t.cancel(errStalled) })
	n, err := t.ReadCloser.Read(p)
	timer.Stop()
	if cause := context.Cause(t.ctx); errors.Is(cause, errStalled) {
		return 0, cause
	}
	t.done += int64(n)
	if time.Since(t.at) > tellEvery {
		t.at = time.Now()
		t.progress(fmt.Sprintf("downloaded %d of %d MB", t.done>>20, t.total>>20))
	}
	return n, err
}

// Close implements io.Closer.
func (t *told) Close() error {
	err := t.ReadCloser.Close()
	t.cancel(nil)
	return err
}

// ParseKey reads a publisher's public key: the file that minisign writes, or its second line.
func ParseKey(text []byte) (key minisign.PublicKey, err error) {
	if err := key.UnmarshalText(bytes.TrimSpace(text)); err != nil {
		return key, fmt.Errorf("the key that bundles are signed with: %w", err)
	}
	return key, nil
}
