package index

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// ErrLimited means that the gateway's live reads are used up for the moment: the
// sandbox may well exist.
var ErrLimited = errors.New("too many live reads")

// LiveOptions configure live reads.
type LiveOptions struct {
	// Reader reads from the API server, not from a cache. Required.
	Reader client.Reader
	// PerSecond bounds the resolves per second (each is one or two reads), and
	// how many may come at once. 0 means 100.
	PerSecond int
	// Reserved is the part of PerSecond that only ResolveReserved may use.
	// 0 means a fifth.
	Reserved int
	// Timeout bounds one resolve. 0 means two seconds.
	Timeout time.Duration
}

// Live resolves by reading. Safe for concurrent use.
type Live struct {
	reader           client.Reader
	timeout          time.Duration
	shared, reserved *rate.Limiter
	metrics          *liveMetrics
}

// NewLive returns a Live with its token bucket full.
func NewLive(o LiveOptions) *Live {
	if o.PerSecond <= 0 {
		o.PerSecond = 100
	}
	if o.Reserved <= 0 {
		o.Reserved = o.PerSecond / 5
	}
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	bucket := func(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(n), n) }
	return &Live{
		reader: o.Reader, timeout: o.Timeout, metrics: newLiveMetrics(),
		shared: bucket(max(o.PerSecond-o.Reserved, 1)), reserved: bucket(o.Reserved),
	}
}

// Resolve reads the sandbox, then the pod of its binding, and says what they
// amount to; Unknown if there is no such sandbox. ErrLimited means that nothing
// was read; other errors are the API server's, or the deadline's.
func (l *Live) Resolve(ctx context.Context, id string) (Answer, error) {
	return l.resolve(ctx, id, l.shared.Allow())
}

// ResolveReserved is Resolve for who has shown a valid key: it may also use the
// reserved share, which a flood of unknown IDs cannot use up.
func (l *Live) ResolveReserved(ctx context.Context, id string) (Answer, error) {
	return l.resolve(ctx, id, l.reserved.Allow() || l.shared.Allow())
}

// Sandbox reads a sandbox for who has shown a valid key; nil if there is none.
// Its errors are those of Resolve.
func (l *Live) Sandbox(ctx context.Context, id string) (*v1alpha1.Sandbox, error) {
	if !l.reserved.Allow() && !l.shared.Allow() {
		l.metrics.reads.WithLabelValues("limited").Inc()
		return nil, ErrLimited
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	s := &v1alpha1.Sandbox{}
	switch err := l.reader.Get(ctx, types.NamespacedName{Name: id}, s); {
	case apierrors.IsNotFound(err):
		l.metrics.reads.WithLabelValues(Unknown.String()).Inc()
		return nil, nil
	case err != nil:
		l.metrics.reads.WithLabelValues("error").Inc()
		return nil, fmt.Errorf("reading sandbox %s: %w", id, err)
	}
	l.metrics.reads.WithLabelValues("sandbox").Inc()
	return s, nil
}

func (l *Live) resolve(ctx context.Context, id string, allowed bool) (Answer, error) {
	if !allowed {
		l.metrics.reads.WithLabelValues("limited").Inc()
		return Answer{}, ErrLimited
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	a, err := l.read(ctx, id)
	if err != nil {
		l.metrics.reads.WithLabelValues("error").Inc()
		return Answer{}, err
	}
	l.metrics.reads.WithLabelValues(a.State.String()).Inc()
	return a, nil
}

// read reads the sandbox before the pod: a pod read later can only be newer than
// the binding, and then no longer fits it.
func (l *Live) read(ctx context.Context, id string) (Answer, error) {
	var s v1alpha1.Sandbox
	if err := l.reader.Get(ctx, types.NamespacedName{Name: id}, &s); err != nil {
		if apierrors.IsNotFound(err) {
			return Answer{State: Unknown}, nil
		}
		return Answer{}, fmt.Errorf("reading sandbox %s: %w", id, err)
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
		return Answer{}, fmt.Errorf("reading pod %s of sandbox %s: %w", name, id, err)
	}
	pod, err := newPod(&p)
	if err != nil {
		return Answer{}, fmt.Errorf("reading sandbox %s: %w", id, err)
	}
	return decide(id, record, pod), nil
}
