package peek

import (
	"bytes"
	"errors"
	"io"
)

// Gate reads requests from a connection, and gives them on as they are, up to one that has
// no single reading or that judge refuses; there Read returns an error, and none of that
// request's head. What comes after a request for an upgrade is given on without a look:
// its caller closes the connection if the answer is not 101. After an error of the
// connection, such as a timeout, Read may be called again. Not safe for concurrent use.
type Gate struct {
	r     io.Reader
	judge func(Head) error
	buf   []byte // read, and not given on
	state gateState
	// free is how many of the next bytes may be given on.
	free int64
	err  error // of a request; it stays
}

// gateState says what comes after the free bytes.
type gateState int

const (
	atHead gateState = iota
	atChunk
	atChunkEnd
	atTrailer
	atRaw
)

// maxLine bounds a line within a body: a chunk's length or a trailer.
const maxLine = 8 << 10

// NewGate returns a gate before r; judge is called with each head before it is given on.
func NewGate(r io.Reader, judge func(Head) error) *Gate { return &Gate{r: r, judge: judge} }

// Read implements io.Reader.
func (g *Gate) Read(p []byte) (int, error) {
	for g.free == 0 && g.state != atRaw {
		if g.err == nil {
			g.err = g.next()
		}
		if g.err != nil {
			return 0, g.err
		}
		if g.free > 0 {
			break
		}
		var err error
		if g.buf, err = more(g.r, g.buf); err != nil {
			if errors.Is(err, io.EOF) && (len(g.buf) > 0 || g.state != atHead) {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}
	if g.state != atRaw {
		p = p[:min(int64(len(p)), g.free)]
	}
	var n int
	var err error
	if len(g.buf) > 0 {
		n = copy(p, g.buf)
		g.buf = g.buf[n:]
	} else {
		n, err = g.r.Read(p)
	}
	if g.state != atRaw {
		g.free -= int64(n)
	}
	return n, err
}

// next looks at the buffer and sets what is free; it stays 0 if more must be read.
func (g *Gate) next() error {
	if g.state == atHead {
		return g.nextHead()
	}
	end := bytes.Index(g.buf, []byte("\r\n"))
	switch {
	case end < 0 && len(g.buf) > maxLine, end > maxLine:
		return ErrTooLong
	case end < 0:
		return nil
	}
	line := g.buf[:end]
	g.free = int64(end) + 2
	switch g.state {
	case atChunk:
		size, ok := chunkSize(line)
		if !ok {
			return ErrHead
		}
		if size == 0 {
			g.state = atTrailer
			return nil
		}
		g.free += size
		g.state = atChunkEnd
	case atChunkEnd:
		if end != 0 {
			return ErrHead
		}
		g.state = atChunk
	case atTrailer:
		if end == 0 {
			g.state = atHead
		} else if _, _, ok := parseField(string(line)); !ok {
			return ErrHead
		}
	}
	return nil
}

func (g *Gate) nextHead() error {
	h, n, err := ParseHead(g.buf)
	if err != nil || n == 0 {
		return err
	}
	if err := g.judge(h); err != nil {
		return err
	}
	g.free = int64(n) + h.Length
	switch {
	case h.Upgrade:
		g.state = atRaw
	case h.Chunked:
		g.state = atChunk
	}
	return nil
}

// chunkSize reads a chunk's length, without extensions.
func chunkSize(line []byte) (size int64, ok bool) {
	for _, c := range line {
		switch {
		case c >= '0' && c <= '9':
			size = size<<4 | int64(c-'0')
		case c >= 'a' && c <= 'f':
			size = size<<4 | int64(c-'a'+10)
		case c >= 'A' && c <= 'F':
			size = size<<4 | int64(c-'A'+10)
		default:
			return 0, false
		}
	}
	return size, len(line) > 0 && len(line) <= 15
}
