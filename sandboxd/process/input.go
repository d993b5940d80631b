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

	writing sync.Mutex // held during a write, so that pieces do not mix
	closing sync.Mutex // guards closed
	closed  bool
}

// use makes a file the input. Call it before the process starts.
func (in *input) use(file *os.File, terminal bool) { in.file, in.terminal = file, terminal }

// write writes all of the piece. It waits for the process to read, and until the
// context ends.
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
	in.writing.Lock()
	defer in.writing.Unlock()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = in.file.SetWriteDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	_, err := in.file.Write(data)
	if !stop() {
		<-interrupted
		_ = in.file.SetWriteDeadline(time.Time{})
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the process did not read its input in time"))
	}
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("writing to the process: %w", err))
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
