package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
)

const (
	// placeWait is how long an archive waits for a place. A sandbox that is to be snapshotted
	// runs meanwhile.
	placeWait = 10 * time.Second
	// Of an archive leastBytes must come within each leastWait that is spent waiting for it:
	// as long as sandboxd holds a sandbox still for a snapshot, since a walk through many
	// files that did not change sends nothing.
	leastBytes = 256 << 10
	leastWait  = 30 * time.Second
)

var (
	// errNoPlace: this gateway writes as many archives as it can, or may for the namespace.
	errNoPlace = errors.New("too many archives are being written")
	// errSlow: an archive came so slowly that it would have kept its place for long.
	errSlow = fmt.Errorf("the sandbox's files come too slowly: less than %d KiB in %v", leastBytes>>10, leastWait)
)

// taking are the claims whose files this gateway takes at the moment: one archive of each, so
// that no pod has several places, whatever it answers.
type taking struct {
	mu     sync.Mutex
	claims map[string]struct{} // guarded by mu
}

// begin is called before the files of a claim are taken, and end after. The errors are
// sandboxdclient.ErrBusy if they are being taken already, and errNoPlace.
func (x *Snapshots) begin(ctx context.Context, namespace, claim string) (end func(), err error) {
	if !x.taking.add(claim) {
		return nil, fmt.Errorf("%w: this gateway is reading its files", sandboxdclient.ErrBusy)
	}
	leave := func() {}
	if x.o.Place != nil {
		ctx, cancel := context.WithTimeout(ctx, placeWait)
		defer cancel()
		if leave, err = x.o.Place(ctx, namespace); err != nil {
			x.taking.remove(claim)
			return nil, fmt.Errorf("%w: %w", errNoPlace, err)
		}
	}
	return func() { leave(); x.taking.remove(claim) }, nil
}

func (m *taking) add(claim string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.claims[claim]; ok {
		return false
	}
	if m.claims == nil {
		m.claims = map[string]struct{}{}
	}
	m.claims[claim] = struct{}{}
	return true
}

func (m *taking) remove(claim string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.claims, claim)
}

// steady is an archive of a pod that may not come too slowly: then reading it fails with
// errSlow. Only the time counts in which the archive is waited for, not the store's. One
// goroutine reads.
type steady struct {
	io.ReadCloser
	ctx    context.Context // of the call to the pod
	cancel context.CancelCauseFunc

	left time.Duration // until leastBytes must have come
	got  int           // of them
	room *budget       // nil before put
}

// open opens an archive. The caller closes it.
func (x *Snapshots) open(ctx context.Context, open func(context.Context) (io.ReadCloser, error)) (*steady, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	archive, err := open(ctx)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &steady{ReadCloser: archive, ctx: ctx, cancel: cancel, left: leastWait}, nil
}

// Read implements io.Reader.
func (r *steady) Read(p []byte) (int, error) {
	begun := time.Now()
	timer := time.AfterFunc(r.left, func() { r.cancel(errSlow) })
	n, err := r.ReadCloser.Read(p)
	timer.Stop()
	if cause := context.Cause(r.ctx); errors.Is(cause, errSlow) {
		return 0, cause
	}
	r.left -= time.Since(begun)
	if r.got += n; r.got >= leastBytes {
		r.left, r.got = leastWait, 0
	}
	if n > 0 && r.room != nil {
		if err := r.room.take(n); err != nil {
			return 0, err
		}
	}
	return n, err
}

// Close implements io.Closer.
func (r *steady) Close() error {
	err := r.ReadCloser.Close()
	r.cancel(nil)
	return err
}

// put puts an archive into the store within what its namespace may keep, and closes it. Then
// keep writes that the archive is kept.
func (x *Snapshots) put(ctx context.Context, cp *v1alpha1.Checkpoint, archive *steady, keep func(checkpoint.Info) error) error {
	room, err := x.newBudget(ctx, cp)
	if err != nil {
		return errors.Join(err, archive.Close())
	}
	archive.room = room
	info, err := x.o.Store.Put(ctx, string(cp.UID), archive)
	err = errors.Join(err, archive.Close())
	if x.o.Metrics.stored(info.Bytes, err); err == nil {
		err = keep(info)
	}
	room.end(err)
	return err
}
