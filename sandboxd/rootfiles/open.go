package rootfiles

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/sandlane/sandlane/sandboxd/files"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// order is what the child is to do with files of a user.
type order struct {
	Do       string // read, find, write or remove
	User     users.User
	Path     string
	Paths    []string          `json:",omitempty"`
	Metadata map[string]string `json:",omitempty"`
}

// result is a line that comes with the descriptor of an opened file.
type result struct {
	Status   int // of the error, as in HTTP; 0 if there was none
	Error    string
	Metadata map[string]string `json:",omitempty"`
}

// maxLine bounds an order and a result.
const maxLine = 2 << 20

// keep ends a write whose file is to stay; the end of the connection without it is the end of
// an upload that failed.
const keep = 'k'

// opener implements files.Opener in the child, for one request.
type opener struct {
	client *Client
	ctx    context.Context
	user   users.User
}

// Open returns how the contents of a user's files are opened, for one request.
func (c *Client) Open(ctx context.Context, u users.User) files.Opener { return opener{c, ctx, u} }

// Read opens a file for reading.
func (o opener) Read(path string) (*os.File, error) {
	return o.opened(order{Do: "read", Path: path})
}

// Find opens a file for its description.
func (o opener) Find(path string) (*os.File, error) {
	return o.opened(order{Do: "find", Path: path})
}

// Remove removes files.
func (o opener) Remove(paths []string) error {
	conn, _, _, err := o.ask(order{Do: "remove", Paths: paths})
	if err == nil {
		_ = conn.Close()
	}
	return err
}

func (o opener) opened(r order) (*os.File, error) {
	conn, f, _, err := o.ask(r)
	if err != nil {
		return nil, err
	}
	return f, conn.Close()
}

// Write opens a file for an upload.
func (o opener) Write(path string, metadata map[string]string) (*files.Written, error) {
	conn, f, got, err := o.ask(order{Do: "write", Path: path, Metadata: metadata})
	if err != nil {
		return nil, err
	}
	return &files.Written{File: f, Metadata: got.Metadata, End: func(stays bool) error {
		defer func() { _ = conn.Close() }()
		if stays {
			_, _ = conn.Write([]byte{keep}) // a child that has died removes nothing
			return nil
		}
		// A client that is still there learns that its upload failed once the file is gone.
		_ = conn.CloseWrite()
		defer context.AfterFunc(o.ctx, func() { _ = conn.SetDeadline(past) })()
		_, _ = conn.Read(make([]byte, 1))
		return nil
	}}, nil
}

// past is a deadline that ends all reading and writing.
var past = time.Unix(1, 0)

// ask sends an order and returns its result, with the file unless the order is to remove. If
// the error is nil, the caller closes both.
func (o opener) ask(r order) (*net.UnixConn, *os.File, result, error) {
	r.User = o.user
	conn, err := o.client.connect(o.ctx, kindOpen)
	if err != nil {
		return nil, nil, result{}, unavailable(err)
	}
	// A frozen child answers later, and the request must not wait for it.
	stop := context.AfterFunc(o.ctx, func() { _ = conn.SetDeadline(past) })
	var got result
	err = json.NewEncoder(conn).Encode(r)
	var line []byte
	var f *os.File
	if err == nil {
		if line, f, err = readLine(conn, r.Path); err == nil {
			err = json.Unmarshal(line, &got)
		}
	}
	if !stop() && err == nil {
		err = o.ctx.Err()
	}
	switch {
	case err != nil:
		err = unavailable(fmt.Errorf("%w: %w", ErrUnavailable, err))
	case got.Status != 0:
		err = files.Failure(got.Status, got.Error)
	case f == nil && r.Do != "remove":
		err = unavailable(ErrUnavailable)
	}
	if err != nil {
		if f != nil {
			_ = f.Close()
		}
		_ = conn.Close()
		return nil, nil, got, err
	}
	return conn, f, got, nil
}

// unavailable is an error that is answered with 503.
func unavailable(err error) error { return files.Failure(http.StatusServiceUnavailable, err.Error()) }
