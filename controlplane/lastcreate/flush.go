package lastcreate

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// flush writes what has advanced, and forgets pools that are gone. Only the goroutine
// of Start calls it.
func (t *Tracker) flush(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var pools int
	var last error
	for pool, r := range t.records() {
		switch gone, err := t.flushOne(ctx, pool, r); {
		case gone:
			t.mu.Lock()
			delete(t.pools, pool)
			t.mu.Unlock()
		case err != nil:
			pools, last = pools+1, fmt.Errorf("noting when pool %s was last asked for a sandbox: %w", pool, err)
		}
	}
	if pools > 0 {
		t.failed(pools, last)
	}
}

func (t *Tracker) records() map[types.NamespacedName]*record {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make(map[types.NamespacedName]*record, len(t.pools))
	for pool, r := range t.pools {
		all[pool] = r
	}
	return all
}

// flushOne moves the pool's annotation forward if it is behind by an interval; gone:
// there is no such pool.
func (t *Tracker) flushOne(ctx context.Context, pool types.NamespacedName, r *record) (gone bool, err error) {
	last := r.last.Load()
	if last == r.flushed && t.known == nil {
		return false, nil // nothing to write; whether the pool is gone would cost a read
	}
	value, exists, err := t.annotation(ctx, pool)
	if err != nil || !exists {
		return err == nil, err
	}
	if last == r.flushed {
		return false, nil
	}
	if time.Unix(0, last).Sub(t.effective(r, value)) >= t.interval {
		err = t.write(ctx, pool, value, time.Unix(0, last))
	}
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	}
	r.flushed = last
	return false, nil
}

// effective is the time that an annotation counts as. The zero time stands for none, or
// one that is no time.
func (t *Tracker) effective(r *record, value string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		return time.Time{}
	}
	now := t.clock.Now()
	switch {
	case value == r.ahead:
		return r.seen
	case at.After(now):
		r.ahead, r.seen = value, now
		return now
	}
	return at
}

// write changes the annotation from the value to a time. If another gateway changed it
// meanwhile nothing is written, and that is no error.
func (t *Tracker) write(ctx context.Context, key types.NamespacedName, from string, to time.Time) (err error) {
	const annotations = "/metadata/annotations"
	path, value := writes.Key(annotations, v1alpha1.AnnotationLastCreate), to.UTC().Format(time.RFC3339Nano)
	tries := []writes.Patch{writes.Patch{}.Test(path, from).Set(path, value)}
	if from == "" {
		tries = []writes.Patch{
			writes.Patch{}.Test(path, nil).Set(path, value),
			// A pool without any annotation has nowhere to put one.
			writes.Patch{}.Test(annotations, nil).Set(annotations, map[string]string{v1alpha1.AnnotationLastCreate: value}),
		}
	}
	for _, p := range tries {
		pool := &v1alpha1.SandboxPool{}
		pool.Namespace, pool.Name = key.Namespace, key.Name
		if err = t.client.Patch(ctx, pool, p.Build()); writes.Refused(err) {
			continue
		}
		if err == nil {
			t.writes.WithLabelValues(written).Inc()
		} else {
			t.writes.WithLabelValues(failed).Inc()
		}
		return err
	}
	t.writes.WithLabelValues(meanwhile).Inc()
	return nil
}

// annotation returns what the pool's annotation says now.
func (t *Tracker) annotation(ctx context.Context, key types.NamespacedName) (value string, exists bool, err error) {
	if t.known != nil {
		value, exists = t.known(key)
		return value, exists, nil
	}
	pool := &v1alpha1.SandboxPool{}
	err = t.client.Get(ctx, key, pool)
	if apierrors.IsNotFound(err) {
		return "", false, nil
	}
	return pool.Annotations[v1alpha1.AnnotationLastCreate], err == nil, err
}
