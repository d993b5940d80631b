package sandboxpool

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// plugins refuse what they are told to, and cap replicas at 2.
type plugins struct {
	refuse           error
	creates, updates int
	old              *v1alpha1.SandboxPool
}

func (p *plugins) PreCreatePool(_ context.Context, pool *v1alpha1.SandboxPool) error {
	p.creates++
	return p.judge(pool)
}

func (p *plugins) PreUpdatePool(_ context.Context, old, pool *v1alpha1.SandboxPool) error {
	p.updates++
	p.old = old
	return p.judge(pool)
}

func (p *plugins) judge(pool *v1alpha1.SandboxPool) error {
	pool.Spec.Replicas = min(pool.Spec.Replicas, 2)
	return p.refuse
}

func (l *lagging) pool() *v1alpha1.SandboxPool {
	l.t.Helper()
	var pool v1alpha1.SandboxPool
	if err := l.real.Get(l.t.Context(), key, &pool); err != nil {
		l.t.Fatal(err)
	}
	return &pool
}

func TestPluginsRefuseAndMutate(t *testing.T) {
	l := newLagging(t, 7)
	p := &plugins{refuse: errors.New("not on a Sunday")}
	l.PluginManager = p
	generation := func(g int64) {
		pool := l.pool()
		pool.Generation = g // the fake client counts none
		if err := l.real.Update(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	generation(1)
	l.reconcile(3)
	c := meta.FindStatusCondition(l.pool().Status.Conditions, v1alpha1.PoolConditionDegraded)
	if l.creates != 0 || p.creates != 1 || c == nil || c.Reason != "RefusedByPlugin" || c.Message != "not on a Sunday" {
		t.Fatalf("%d pods for a refused pool, asked %d times, condition %+v", l.creates, p.creates, c)
	}
	p.refuse = nil
	generation(2)
	l.reconcile(3)
	if got := l.pool(); got.Spec.Replicas != 2 || l.creates != 1 || p.updates != 1 || p.old != nil {
		t.Errorf("%d replicas, %d pods, %d updates, old %v", got.Spec.Replicas, l.creates, p.updates, p.old)
	}
	generation(3)
	l.reconcile(1)
	if p.updates != 2 || p.old == nil || p.old.Spec.Replicas != 2 {
		t.Errorf("%d updates, old %+v", p.updates, p.old)
	}
}

func TestEventsAreLimited(t *testing.T) {
	var limit eventLimit
	count := func(reason string, at time.Time) (n int) {
		for range 100 {
			if limit.allow("u", reason, at) {
				n++
			}
		}
		return n
	}
	if n := count("CreateFailed", now); n != eventBurst {
		t.Errorf("%d at once, want %d", n, eventBurst)
	}
	if n := count("Unready", now); n != eventBurst {
		t.Errorf("%d of another reason, want %d", n, eventBurst)
	}
	if n := count("CreateFailed", now.Add(eventPause)); n != 1 {
		t.Errorf("%d after a pause, want 1", n)
	}
	if n := count("CreateFailed", now.Add(time.Hour)); n != eventBurst {
		t.Errorf("%d after an hour, want %d", n, eventBurst)
	}
}
