package index

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routing"
)

// LiveOptions configure live reads.
type LiveOptions struct {
	// Reader reads from the API server, not from a cache. Required.
	Reader client.Reader
	// PerSecond bounds the resolves per second (each is one or two reads) of all
	// requests without an API key, and how many may come at once. 0 means 80.
	PerSecond int
	// PerKey bounds those of each API key in the same way. 0 means 100.
	PerKey int
	// Timeout bounds one resolve. 0 means two seconds.
	Timeout time.Duration
}

// Live resolves by reading. Safe for concurrent use.
type Live struct {
	reader  client.Reader
	timeout time.Duration
	shares  *shares
	shared  *sharedReads
	metrics *liveMetrics
}

// NewLive returns a Live with all shares untouched.
func NewLive(o LiveOptions) *Live {
	if o.PerSecond <= 0 {
		o.PerSecond = 80
	}
	if o.PerKey <= 0 {
		o.PerKey = 100
	}
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	l := &Live{reader: o.Reader, timeout: o.Timeout, metrics: newLiveMetrics(), shares: newShares(o.PerSecond, o.PerKey)}
	l.shared = newSharedReads(l.resolve)
	return l
}

// Start ends the resolves that are under way when ctx is over, and refuses further ones;
// it returns nil when none runs any more. It is a manager.Runnable; call it once. A Live
// resolves before it is started, too.
func (l *Live) Start(ctx context.Context) error {
	<-ctx.Done()
	l.shared.close()
	return nil
}

// NeedLeaderElection makes it run in every gateway.
func (l *Live) NeedLeaderElection() bool { return false }

// Resolve reads the sandbox, then the pod of its binding, and returns the answer of
// both; Unknown if there is no such sandbox. routing.ErrLimited means that nothing
// was read, and routing.ErrUnavailable that the API server did not answer in time; other
// errors are the API server's, or the deadline's.
func (l *Live) Resolve(ctx context.Context, id string) (routing.Answer, error) {
	return l.ResolveFor(ctx, "", id)
}

// ResolveFor is Resolve for a request that has shown a valid API key: it counts
// against that key's share alone, which neither requests without a key nor those
// with other keys can use up. key names the API key and is not the key itself;
// empty means that there was none. Requests with the same key for the same sandbox
// share reads that begin after they came.
func (l *Live) ResolveFor(ctx context.Context, key, id string) (routing.Answer, error) {
	reading, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	a, err := l.shared.resolve(reading, key, id)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", routing.ErrUnavailable, err) // the caller has time left
	}
	return a, err
}

// Sandbox reads a sandbox, counted as by ResolveFor; nil if there is none. Its errors
// are those of Resolve.
func (l *Live) Sandbox(ctx context.Context, key, id string) (*v1alpha1.Sandbox, error) {
	if !l.shares.take(key) {
		l.metrics.reads.WithLabelValues(readLimited).Inc()
		return nil, routing.ErrLimited
	}
	return l.SandboxToEnd(ctx, id)
}

// SandboxToEnd is Sandbox for a sandbox that its owner wants ended. It counts against
// no share: an end makes room, and is bounded by the limit of the key's requests.
func (l *Live) SandboxToEnd(ctx context.Context, id string) (*v1alpha1.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	s := &v1alpha1.Sandbox{}
	switch err := l.reader.Get(ctx, types.NamespacedName{Name: id}, s); {
	case apierrors.IsNotFound(err):
		l.metrics.reads.WithLabelValues(routing.Unknown.String()).Inc()
		return nil, nil
	case err != nil:
		l.metrics.reads.WithLabelValues(readFailed).Inc()
		return nil, fmt.Errorf("reading sandbox %s: %w", id, err)
	}
	l.metrics.reads.WithLabelValues(readSandbox).Inc()
	return s, nil
}

// resolve makes one read.
func (l *Live) resolve(ctx context.Context, key, id string) (routing.Answer, error) {
	if !l.shares.take(key) {
		l.metrics.reads.WithLabelValues(readLimited).Inc()
		return routing.Answer{}, routing.ErrLimited
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	a, err := l.read(ctx, id)
	if err != nil {
		l.metrics.reads.WithLabelValues(readFailed).Inc()
		return routing.Answer{}, err
	}
	l.metrics.reads.WithLabelValues(a.State.String()).Inc()
	return a, nil
}

// read reads the sandbox before the pod: a pod read later can only be newer than
// the binding, and then no longer fits it.
func (l *Live) read(ctx context.Context, id string) (routing.Answer, error) {
	var s v1alpha1.Sandbox
	if err := l.reader.Get(ctx, types.NamespacedName{Name: id}, &s); err != nil {
		if apierrors.IsNotFound(err) {
			return routing.Answer{State: routing.Unknown}, nil
		}
		return routing.Answer{}, fmt.Errorf("reading sandbox %s: %w", id, err)
	}
	record := newSandbox(&s)
	if record.ended || record.claim == "" {
		return decide(id, record, nil), nil
	}
	var p corev1.Pod
	name := types.NamespacedName{Namespace: s.Spec.Namespace, Name: record.podName}
	if err := l.reader.Get(ctx, name, &p); err != nil {
		if apierrors.IsNotFound(err) {
			return decide(id, record, nil), nil
		}
		return routing.Answer{}, fmt.Errorf("reading pod %s of sandbox %s: %w", name, id, err)
	}
	pod, err := newPod(&p)
	if err != nil {
		return routing.Answer{}, fmt.Errorf("reading sandbox %s: %w", id, err)
	}
	return decide(id, record, pod), nil
}
