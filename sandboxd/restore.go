package sandboxd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sandlane/sandlane/sandboxd/access"
	"github.com/sandlane/sandlane/sandboxd/archive"
)

const (
	// maxChunk bounds one part of an archive, which is read whole before it counts.
	maxChunk = 4 << 20
	// restoreWait bounds one request of /restore; gateways wait for two seconds.
	restoreWait = 1200 * time.Millisecond
)

// The errors with which a /restore is refused.
var (
	errSealed    = errors.New("the sandbox is initialised: its files are not replaced any more")
	errOtherPart = errors.New("this is not the part that comes next")
	errNotTaken  = errors.New("the part before is not written yet")
)

// restoreArguments are the arguments of /restore. The body is the part of an archive that
// begins at Offset.
type restoreArguments struct {
	// ID tells one restore from another.
	ID        string   `json:"id"`
	Offset    int64    `json:"offset"`
	Last      bool     `json:"last"`
	EmptyDirs []string `json:"emptyDirs"`
}

// restoring restores an archive, part by part, before /init:
//
//	open ─first part─▶ under way ─last part, all written─▶ restored ─/init─▶ sealed
//	  │                     └─a part, or writing it, fails─▶ failed
//	  └─/init─▶ sealed
//
// A part that was accepted before is accepted again without effect, so that a gateway may
// repeat a request whose answer was lost. /init is refused while the restore is under way
// and after it has failed. No part is accepted once the state is sealed: a delayed part must
// not overwrite the files of a sandbox that runs.
type restoring struct {
	ctx    context.Context // its end interrupts the restore
	cancel context.CancelFunc
	parts  chan []byte
	spare  chan []byte   // buffers of parts that are written, for the next ones
	done   chan struct{} // closed when err is set

	mu     sync.Mutex // guards the rest; not held while a part is written
	sealed bool
	id     string // of the restore; empty before the first part
	taken  int64  // how many bytes were accepted
	last   bool   // the last part was accepted
	busy   bool   // a part waits to be written
	err    error
}

func newRestoring() *restoring {
	x := &restoring{parts: make(chan []byte), spare: make(chan []byte, 2), done: make(chan struct{})}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	return x
}

// seal is called before the first /init takes effect, which is refused if it returns an
// error.
func (x *restoring) seal() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.id != "" {
		select {
		case <-x.done:
			if x.err != nil {
				return errors.New("the sandbox's files were not restored")
			}
		default:
			return errors.New("the sandbox's files are being restored")
		}
	}
	x.sealed = true
	return nil
}

// acceptPart accepts a part, and reports whether the whole archive is restored. False
// without an error means that the gateway may send the next part, or the last part again.
func (x *restoring) acceptPart(ctx context.Context, order restoreArguments, part []byte, begin func(io.Reader) error) (restored bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, restoreWait)
	defer cancel()
	write, err := x.admit(order, part, begin)
	if err == nil && write {
		err = x.handOver(ctx, part, order.Last)
	}
	if err != nil {
		return false, err
	}
	if !order.Last {
		select {
		case <-x.done: // before the last part: the restore has failed
			return false, x.err
		default:
			return false, nil
		}
	}
	select {
	case <-x.done:
		return x.err == nil, x.err
	case <-ctx.Done():
		return false, nil
	}
}

// admit checks a part, and reports whether it is to be written.
func (x *restoring) admit(order restoreArguments, part []byte, begin func(io.Reader) error) (write bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.sealed:
		return false, errSealed
	case order.ID == "" || x.id != "" && x.id != order.ID:
		return false, errOtherPart
	case x.busy:
		return false, errNotTaken
	case order.Offset+int64(len(part)) <= x.taken && x.last == order.Last, x.last:
		return false, nil
	case order.Offset != x.taken:
		return false, errOtherPart
	}
	if x.id == "" {
		x.id = order.ID
		go func() {
			x.err = begin(&partsReader{x: x})
			for x.buffer() != nil { // the sandbox needs the memory
			}
			close(x.done)
		}()
	}
	x.busy = true
	return true, nil
}

// handOver gives a part to the goroutine that writes it.
func (x *restoring) handOver(ctx context.Context, part []byte, last bool) error {
	var err error
	if len(part) > 0 {
		select {
		case x.parts <- part:
		case <-x.done:
		case <-ctx.Done():
			err = errNotTaken
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.busy = false
	if err != nil {
		return err
	}
	x.taken += int64(len(part))
	if last {
		x.last = true
		close(x.parts)
	}
	return nil
}

// restored returns the ID of the restore that was completed; empty if none was.
func (x *restoring) restored() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.id == "" {
		return ""
	}
	select {
	case <-x.done:
		if x.err == nil {
			return x.id
		}
	default:
	}
	return ""
}

// close interrupts a restore that is under way, and returns when no file is written any
// more.
func (x *restoring) close() {
	x.cancel()
	x.mu.Lock()
	x.sealed = true
	begun := x.id != ""
	x.mu.Unlock()
	if begun {
		<-x.done
	}
}

// buffer returns a buffer for a part, nil if there is none. Without it each part would take
// new memory, which costs more than to hash it.
func (x *restoring) buffer() []byte {
	select {
	case buf := <-x.spare:
		return buf
	default:
		return nil
	}
}

// giveBack takes a buffer that nothing reads any more.
func (x *restoring) giveBack(buf []byte) {
	select {
	case x.spare <- buf:
	default:
	}
}

// partsReader reads the parts as one stream.
type partsReader struct {
	x    *restoring
	part []byte
	rest []byte // of part
}

func (r *partsReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.part != nil {
			r.x.giveBack(r.part)
			r.part = nil
		}
		select {
		case part, more := <-r.x.parts:
			if !more {
				return 0, io.EOF
			}
			r.part, r.rest = part, part
		case <-r.x.ctx.Done():
			return 0, r.x.ctx.Err()
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// restore serves POST /restore: it answers 200 once all files are restored, and 202 before.
func (s *Server) restore(caller *caller) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if caller.Initialised() { // before the body is read, which any client could send
			access.Error(w, http.StatusConflict, errSealed.Error())
			return
		}
		text, part, ok := caller.Command(w, r, "restore", maxChunk, s.restoring.buffer())
		if !ok {
			return
		}
		var order restoreArguments
		if err := json.Unmarshal([]byte(text), &order); err != nil {
			access.Error(w, http.StatusBadRequest, "invalid arguments: "+err.Error())
			return
		}
		tree, err := s.tree(order.EmptyDirs)
		restored := false
		if err == nil {
			restored, err = s.restoring.acceptPart(r.Context(), order, part, func(r io.Reader) error {
				return archive.Extract(s.restoring.ctx, r, tree)
			})
		}
		switch {
		case err == nil && restored:
			w.WriteHeader(http.StatusOK)
		case err == nil:
			w.WriteHeader(http.StatusAccepted)
		case errors.Is(err, errNotTaken):
			access.Error(w, http.StatusServiceUnavailable, err.Error())
		case errors.Is(err, errSealed), errors.Is(err, errOtherPart):
			access.Error(w, http.StatusConflict, err.Error())
		case errors.Is(err, errNoLayer), errors.Is(err, archive.ErrUnsupported):
			access.Error(w, http.StatusNotImplemented, err.Error())
		default:
			s.suspender.log("sandboxd: /restore: %v\n", err)
			access.Error(w, http.StatusUnprocessableEntity, fmt.Sprintf("the files cannot be restored: %v", err))
		}
	}
}
