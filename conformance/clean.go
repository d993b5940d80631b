package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

func (r *run) remember(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made[path] = true
}

// remove deletes what is at a path of the REST API; what fails is tried again at the end.
func (r *run) remove(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(ctx, cleanTime)
	defer cancel()
	_ = r.delete(ctx, path)
}

func (r *run) delete(ctx context.Context, path string) error {
	one := running{run: r}
	a, err := one.ask(ctx, Step{REST: "DELETE " + path})
	switch {
	case err != nil:
		return fmt.Errorf("delete %s: %w", path, err)
	case a.status >= 300 && a.status != http.StatusNotFound:
		return fmt.Errorf("delete %s: %d %s", path, a.status, shown(a.text))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.made, path)
	return nil
}

// clean deletes all that may be left: what was remembered, and what has the run's mark since
// its create was not answered. If the run was stopped, a create may still be under way: the
// last list is empty, and made settleTime after the stop.
func (r *run) clean(ctx context.Context, stopped bool) error {
	began := time.Now()
	for {
		late := !stopped || time.Since(began) >= settleTime
		r.list(ctx)
		r.mu.Lock()
		left := slices.Sorted(maps.Keys(r.made))
		r.mu.Unlock()
		var failed error
		for _, path := range left {
			failed = errors.Join(failed, r.delete(ctx, path))
		}
		if late && (len(left) == 0 || failed != nil || !stopped) {
			return failed
		}
		select {
		case <-ctx.Done():
			return errors.Join(failed, ctx.Err())
		case <-time.After(settleTime / 4):
		}
	}
}

// list remembers the sandboxes that have the run's mark.
func (r *run) list(ctx context.Context) {
	one := running{run: r}
	a, err := one.ask(ctx, Step{REST: "GET /v2/sandboxes?metadata=" + mark + "%3D" + r.name})
	var listed []struct {
		SandboxID string
		Metadata  map[string]string
	}
	if err != nil || json.Unmarshal([]byte(a.text), &listed) != nil {
		return // what is remembered is deleted all the same
	}
	for _, s := range listed {
		if s.Metadata[mark] != r.name {
			continue // of somebody else: this backend ignores the filter
		}
		r.remember("/sandboxes/" + s.SandboxID)
		r.snapshotsOf(ctx, s.SandboxID)
	}
}

// snapshotsOf remembers what a program of an SDK may have left behind when it was killed. A
// list does not say whose a snapshot is: where one of no sandbox, as the run's name is none,
// is not empty, the backend ignores the filter, and what it lists may be somebody else's.
func (r *run) snapshotsOf(ctx context.Context, sandbox string) {
	if len(r.snapshots(ctx, r.name)) > 0 {
		return
	}
	for _, id := range r.snapshots(ctx, sandbox) {
		r.remember("/templates/" + id)
	}
}

// snapshots lists a sandbox's; without an answer there is nothing to take away.
func (r *run) snapshots(ctx context.Context, sandbox string) (ids []string) {
	one := running{run: r}
	a, err := one.ask(ctx, Step{REST: "GET /snapshots?sandboxID=" + sandbox})
	var listed []struct{ SnapshotID string }
	if err != nil || json.Unmarshal([]byte(a.text), &listed) != nil {
		return nil
	}
	for _, s := range listed {
		ids = append(ids, s.SnapshotID)
	}
	return ids
}
