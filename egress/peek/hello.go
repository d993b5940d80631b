package peek

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// maxHello bounds what is read of a ClientHello: its own 64 KiB, and the records around it.
const maxHello = 80 << 10

var errRead = errors.New("read") // ends a handshake once the ClientHello is known

// Hello reads a TLS ClientHello. It returns the server name in it, empty if there is none,
// and all bytes that it has taken from r, which may be more. It writes nothing.
func Hello(r io.Reader) (name string, taken []byte, err error) {
	var b bytes.Buffer
	got := false
	config := &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		name, got = hello.ServerName, true
		return nil, errRead
	}}
	err = tls.Server(readOnly{io.TeeReader(io.LimitReader(r, maxHello), &b)}, config).Handshake()
	if !got {
		return "", b.Bytes(), fmt.Errorf("read a ClientHello: %w", err)
	}
	return name, b.Bytes(), nil
}

// readOnly is a connection that nothing can be written to.
type readOnly struct{ io.Reader }

func (readOnly) Write([]byte) (int, error)        { return 0, io.ErrClosedPipe }
func (readOnly) Close() error                     { return nil }
func (readOnly) LocalAddr() net.Addr              { return nil }
func (readOnly) RemoteAddr() net.Addr             { return nil }
func (readOnly) SetDeadline(time.Time) error      { return nil }
func (readOnly) SetReadDeadline(time.Time) error  { return nil }
func (readOnly) SetWriteDeadline(time.Time) error { return nil }
