package builds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

const (
	// Bounds of a log: its bytes, its entries, and the bytes of an entry.
	maxLog, maxEntries, maxEntry = 256 << 10, 2000, 8000
	// writeEvery is the time between two writes of a log that grows, beatEvery between two that
	// only say that the build goes on.
	writeEvery, beatEvery = time.Second, 20 * time.Second
	// settlePause is the time between two tries of a write that must succeed.
	settlePause = 200 * time.Millisecond
	// maxMessage bounds the reason of a failure.
	maxMessage = 4000
)

// errGivenUp: the build was deleted, or the controller has written that it failed.
var errGivenUp = errors.New("the build was given up meanwhile")

// record is the status of a build that this gateway runs. It is safe for concurrent use; writes
// are one at a time.
type record struct {
	api client.Client

	writing sync.Mutex // held around a write
	mu      sync.Mutex // guards the rest
	build   *v1alpha1.TemplateBuild
	log     []v1alpha1.BuildLogEntry
	bytes   int
	full    bool
	step    string
	dirty   bool
	written time.Time
}

func newRecord(api client.Client, build *v1alpha1.TemplateBuild) *record {
	return &record{api: api, build: build}
}

// begin writes that this gateway runs the build.
func (r *record) begin(ctx context.Context, gateway string) error {
	return r.write(ctx, func(s *v1alpha1.TemplateBuildStatus) {
		s.Phase, s.Gateway, s.PhaseAt = v1alpha1.BuildBuilding, gateway, new(metav1.Now())
	})
}

// at says which step is being done.
func (r *record) at(step string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step, r.dirty = step, true
}

// print adds lines to the log, as of the step that is being done.
func (r *record) print(level, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.SplitSeq(strings.TrimRight(text, "\r\n"), "\n") {
		line = strings.ToValidUTF8(strings.TrimRight(line, "\r"), "\uFFFD")
		for len(line) > maxEntry {
			cut := maxEntry
			for !utf8.RuneStart(line[cut]) {
				cut--
			}
			r.add(level, line[:cut])
			line = line[cut:]
		}
		r.add(level, line)
	}
}

// add adds an entry; mu is held.
func (r *record) add(level, line string) {
	if r.full {
		return
	}
	if r.bytes += len(line) + 64; r.bytes > maxLog || len(r.log) == maxEntries-1 {
		r.full, level, line = true, "warn", "the log is longer; the rest is left out"
	}
	r.log = append(r.log, v1alpha1.BuildLogEntry{At: metav1.NowMicro(), Level: level, Step: r.step, Text: line})
	r.dirty = true
}

// keep writes the log and the heartbeat until ctx ends, and calls lost if the build was given
// up.
func (r *record) keep(ctx context.Context, lost func()) {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.mu.Lock()
		due := r.dirty || time.Since(r.written) > beatEvery
		r.mu.Unlock()
		if !due {
			continue
		}
		if err := r.write(ctx, func(*v1alpha1.TemplateBuildStatus) {}); errors.Is(err, errGivenUp) {
			lost()
			return
		}
	}
}

// write writes the log and a change of the status, if the build is still this gateway's.
func (r *record) write(ctx context.Context, change func(*v1alpha1.TemplateBuildStatus)) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	build := r.build.DeepCopy()
	build.Status.Log, build.Status.Step = r.log[:len(r.log):len(r.log)], r.step
	dirty := r.dirty
	r.dirty = false
	r.mu.Unlock()
	build.Status.Heartbeat = new(metav1.Now())
	change(&build.Status)
	err := r.api.Status().Patch(ctx, build, client.MergeFromWithOptions(r.build, client.MergeFromWithOptimisticLock{}))
	switch {
	case err == nil:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.build, r.written = build, time.Now()
		return nil
	case apierrors.IsNotFound(err):
		return errGivenUp
	case apierrors.IsConflict(err):
		err = r.reread(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirty = r.dirty || dirty
	return fmt.Errorf("write the status of build %s: %w", r.build.Name, err)
}

// reread reads a build that another process has written to; it returns writes.ErrStale if the build
// is this gateway's still.
func (r *record) reread(ctx context.Context) error {
	now := &v1alpha1.TemplateBuild{}
	err := r.api.Get(ctx, client.ObjectKeyFromObject(r.build), now)
	switch {
	case apierrors.IsNotFound(err):
		return errGivenUp
	case err != nil:
		return err
	case now.UID != r.build.UID || now.DeletionTimestamp != nil || now.Status.Phase != r.build.Status.Phase || now.Status.Gateway != r.build.Status.Gateway:
		return errGivenUp
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.build = now
	return writes.ErrStale
}

// settle is write, again and again until it succeeds, the build was given up, or ctx ends.
func (r *record) settle(ctx context.Context, change func(*v1alpha1.TemplateBuildStatus)) error {
	for {
		err := r.write(ctx, change)
		if err == nil || errors.Is(err, errGivenUp) || !backoff.Sleep(ctx, settlePause) {
			return err
		}
	}
}

// fail writes why a build failed.
func (r *record) fail(ctx context.Context, cause error) error {
	text := strings.ToValidUTF8(cause.Error(), "\uFFFD")
	r.print("error", text)
	return r.settle(ctx, func(s *v1alpha1.TemplateBuildStatus) {
		s.Phase, s.Message, s.PhaseAt = v1alpha1.BuildFailed, strings.ToValidUTF8(text[:min(len(text), maxMessage)], ""), new(metav1.Now())
	})
}
