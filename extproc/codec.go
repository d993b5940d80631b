package extproc

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// codec is protobuf as gRPC has it, but for the two messages of a hit, which need
// no message structs: a *call is decoded from Envoy's ProcessingRequest, of which
// it takes the headers that are read; an encodedAnswer is sent as it is. Every
// other message goes to protobuf.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// encodedAnswer is a ProcessingResponse in wire form.
type encodedAnswer []byte

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if answer, ok := v.(encodedAnswer); ok {
		return mem.BufferSlice{mem.SliceBuffer(answer)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2. What it reads it copies: data belongs to
// the transport.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	request, ok := v.(*call)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if len(data) == 1 {
		return request.decode(data[0].ReadOnlyData())
	}
	return request.decode(data.Materialize())
}

// Field numbers of ProcessingRequest, HttpHeaders, HeaderMap and HeaderValue.
const (
	fieldRequestHeaders   = 2
	fieldResponseHeaders  = 3 // first of the other kinds of request
	fieldResponseTrailers = 7 // last of them
	fieldHTTPHeaders      = 1
	fieldHeaderMapHeaders = 1
	fieldHeaderKey        = 1
	fieldHeaderValue      = 2
	fieldHeaderRawValue   = 3
)

var errWire = errors.New("malformed protobuf")

// nextField splits the first field off a message. value is nil for fields that
// hold no bytes: none of those is read.
func nextField(b []byte) (number protowire.Number, value, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return 0, nil, nil, errWire
	}
	b = b[n:]
	if kind == protowire.BytesType {
		value, n = protowire.ConsumeBytes(b)
	} else {
		n = protowire.ConsumeFieldValue(number, kind, b)
	}
	if n < 0 {
		return 0, nil, nil, errWire
	}
	return number, value, b[n:], nil
}

// decode reads a ProcessingRequest. Fields that come twice add up, as protobuf
// says; of several kinds of request the last one counts.
func (c *call) decode(b []byte) error {
	for len(b) > 0 {
		number, value, rest, err := nextField(b)
		if err != nil {
			return fmt.Errorf("decode a request: %w", err)
		}
		b = rest
		switch {
		case number == fieldRequestHeaders:
			c.isHeaders = true
			if err := c.headers.decodeHTTPHeaders(value); err != nil {
				return fmt.Errorf("decode request headers: %w", err)
			}
		case number >= fieldResponseHeaders && number <= fieldResponseTrailers:
			c.headers, c.isHeaders = Headers{}, false
		}
	}
	return nil
}

func (h *Headers) decodeHTTPHeaders(b []byte) error {
	for len(b) > 0 {
		number, value, rest, err := nextField(b)
		if err != nil {
			return err
		}
		if b = rest; number == fieldHTTPHeaders {
			if err := h.decodeMap(value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *Headers) decodeMap(b []byte) error {
	for len(b) > 0 {
		number, value, rest, err := nextField(b)
		if err != nil {
			return err
		}
		if b = rest; number == fieldHeaderMapHeaders {
			if err := h.decodeHeader(value); err != nil {
				return err
			}
		}
	}
	return nil
}

// decodeHeader reads one header. Envoy lower-cases names and, by default, sends
// values as raw_value.
func (h *Headers) decodeHeader(b []byte) error {
	var key, plain, raw []byte
	for len(b) > 0 {
		number, value, rest, err := nextField(b)
		if err != nil {
			return err
		}
		b = rest
		switch number {
		case fieldHeaderKey:
			key = value
		case fieldHeaderValue:
			plain = value
		case fieldHeaderRawValue:
			raw = value
		}
	}
	f := h.field(string(key))
	if f == nil {
		return nil
	}
	if len(raw) == 0 {
		raw = plain
	}
	if f.Count++; f == &h.Cookie && bytes.Contains(raw, portCookie) || f != &h.Cookie && f.Count == 1 {
		f.Value = string(raw)
	}
	return nil
}
