package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

// input is the standard input of a process: a pipe, a terminal, or nothing.
type input struct {
	file     *os.File // nil if the process was started without input
	terminal bool

	turn    chan struct{} // has an element during a write, so that pieces do not mix
	closing sync.Mutex    // guards closed
	closed  bool
}

// use makes a file the input. Call it before the process starts.
func (in *input) use(file *os.File, terminal bool) {
	in.file, in.terminal, in.turn = file, terminal, make(chan struct{}, 1)
}

// write writes all of the piece. It waits for other pieces and for the process to read,
// until the context ends; a part may be written then.
func (in *input) write(ctx context.Context, piece *processpb.ProcessInput) error {
	var data []byte
	switch kind := piece.GetInput().(type) {
	case *processpb.ProcessInput_Stdin:
		if in.terminal {
			return connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has a terminal: send pty input"))
		}
		data = kind.Stdin
	case *processpb.ProcessInput_Pty:
		if !in.terminal {
			return connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has no terminal: send stdin input"))
		}
		data = kind.Pty
	default:
		return connect.NewError(connect.CodeUnimplemented, errors.New("invalid input type: send stdin or pty"))
	}
	if in.file == nil || in.isClosed() {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("stdin not enabled or closed"))
	}
	select {
	case in.turn <- struct{}{}:
		defer func() { <-in.turn }()
	case <-ctx.Done():
		return errNotRead(ctx)
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = in.file.SetWriteDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	_, err := in.file.Write(data)
	if !stop() {
		<-interrupted // or the deadline could end the next write
		_ = in.file.SetWriteDeadline(time.Time{})
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return errNotRead(ctx)
	}
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("writing to the process: %w", err))
}

// errNotRead is the error of a write whose context has ended.
func errNotRead(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return connect.NewError(connect.CodeCanceled, errors.New("the request ended before the process had read its input"))
	}
	return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the process did not read its input in time"))
}

func (in *input) isClosed() bool {
	in.closing.Lock()
	defer in.closing.Unlock()
	return in.closed
}

// close ends the input; it may be called again. It leaves the file of a terminal open, which
// is also the output and is closed with that.
func (in *input) close() {
	in.closing.Lock()
	defer in.closing.Unlock()
	if in.file == nil || in.closed {
		return
	}
	in.closed = true
	if !in.terminal {
		_ = in.file.Close()
	}
}
