package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// entry is a file or folder of a layer.
type entry struct {
	path     string // without a leading slash
	mode     int64
	uid, gid int
	folder   bool
	text     string // what a file holds
	file     string // or where on this machine that stands
}

func folder(path string, mode int64) entry { return entry{path: path, mode: mode, folder: true} }

// layerOf makes a layer. Its bytes depend on the entries and the time alone.
// Folders come before what is in them: their names sort first.
func layerOf(entries []entry, created time.Time, media types.MediaType) (v1.Layer, error) {
	var buffer bytes.Buffer
	if err := writeTar(&buffer, entries, created); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil
	}, tarball.WithMediaType(media), tarball.WithCompressedCaching)
}

// writeTar writes a layer's content, sorted.
func writeTar(to io.Writer, entries []entry, created time.Time) error {
	w := tar.NewWriter(to)
	for _, e := range slices.SortedFunc(slices.Values(entries), func(a, b entry) int { return cmp.Compare(a.path, b.path) }) {
		if err := e.write(w, created); err != nil {
			return fmt.Errorf("put %s into a layer: %w", e.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("end a layer: %w", err)
	}
	return nil
}

func (e entry) write(w *tar.Writer, created time.Time) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: e.path, Mode: e.mode, Uid: e.uid, Gid: e.gid,
		ModTime: created, Format: tar.FormatPAX,
	}
	content := []byte(e.text)
	switch {
	case e.folder:
		header.Typeflag, header.Name = tar.TypeDir, e.path+"/"
	case e.file != "":
		var err error
		if content, err = os.ReadFile(e.file); err != nil {
			return err
		}
	}
	header.Size = int64(len(content))
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
