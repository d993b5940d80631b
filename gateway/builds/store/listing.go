package store

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sandlane/sandlane/gateway/builds/layer"
)

// maxListings bounds the listings that a build keeps in memory, in bytes; layers beyond it are read
// again for each layer that the build adds.
const maxListings = 8 << 20

// listings are the names of the entries of layers, compressed. The images of one build share them:
// each layer is read once. Not safe for concurrent use.
type listings struct {
	of    map[v1.Hash][]byte
	bytes int
}

// listing makes the listing of one layer.
type listing struct {
	text bytes.Buffer
	to   *flate.Writer
	err  error
}

func newListing() *listing {
	l := &listing{}
	l.to, l.err = flate.NewWriter(&l.text, flate.BestSpeed)
	return l
}

func (l *listing) add(h *tar.Header) {
	if l.err != nil || l.text.Len() > maxListings {
		return
	}
	head := append([]byte{h.Typeflag}, binary.AppendUvarint(nil, uint64(len(h.Name)))...)
	_, l.err = l.to.Write(append(head, h.Name...))
}

// keep keeps a whole listing, if there is room.
func (all *listings) keep(of v1.Hash, l *listing) {
	if err := errors.Join(l.err, l.to.Close()); err != nil || all.bytes+l.text.Len() > maxListings {
		return
	}
	all.of[of], all.bytes = l.text.Bytes(), all.bytes+l.text.Len()
}

// each yields the entries of a listing, and reports whether to go on.
func each(text []byte, number int, yield func(layer.Entry, error) bool) bool {
	for from := bufio.NewReader(flate.NewReader(bytes.NewReader(text))); ; {
		kind, err := from.ReadByte()
		if errors.Is(err, io.EOF) {
			return true
		}
		var length uint64
		if err == nil {
			length, err = binary.ReadUvarint(from)
		}
		name := make([]byte, length) // as add wrote it
		if err == nil {
			_, err = io.ReadFull(from, name)
		}
		if err != nil {
			return yield(layer.Entry{}, err)
		}
		if !yield(layer.Entry{Layer: number, Header: &tar.Header{Typeflag: kind, Name: string(name)}}, nil) {
			return false
		}
	}
}
