package idletimeout

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// leastIdle is the shortest idle timeout that is kept: four of the gateways'
// ticks of a second. A connection that is open and silent is noted as used once a tick,
// an answer of Envoy's later, and what a gateway reports counts as known for three
// ticks: the use of a sandbox in use can be that old.
const leastIdle = 4 * time.Second

// timeouts looks up the timeouts of sandboxes, each pool once. It serves one
// check.
type timeouts struct {
	reader client.Reader
	pools  map[types.NamespacedName]poolDefaults
}

// poolDefaults are a pool and its template; either may be nil.
type poolDefaults struct {
	pool     *v1alpha1.SandboxPool
	template *v1alpha1.SandboxTemplateSpec
}

func newTimeouts(reader client.Reader) *timeouts {
	return &timeouts{reader: reader, pools: map[types.NamespacedName]poolDefaults{}}
}

// of returns the startup timeout and the effective idle timeout. A pool that is gone leaves the
// defaults.
func (t *timeouts) of(ctx context.Context, s *v1alpha1.Sandbox) (startup, idle time.Duration, err error) {
	if s.Spec.Timeouts.Idle != nil && s.Spec.Timeouts.Startup != nil {
		startup, idle = v1alpha1.Timeouts(s, nil, nil)
		return startup, effective(idle), nil
	}
	defaults, err := t.defaults(ctx, poolOf(s))
	if err != nil {
		return 0, 0, err
	}
	startup, idle = v1alpha1.Timeouts(s, defaults.pool, defaults.template)
	return startup, effective(idle), nil
}

// ofPool returns the timeouts of the pool's sandboxes that have none of their own.
func (t *timeouts) ofPool(ctx context.Context, key types.NamespacedName) (startup, idle time.Duration, err error) {
	defaults, err := t.defaults(ctx, key)
	if err != nil {
		return 0, 0, err
	}
	startup, idle = v1alpha1.Timeouts(&v1alpha1.Sandbox{}, defaults.pool, defaults.template)
	return startup, effective(idle), nil
}

func (t *timeouts) defaults(ctx context.Context, key types.NamespacedName) (poolDefaults, error) {
	defaults, ok := t.pools[key]
	if ok {
		return defaults, nil
	}
	defaults, err := t.readPool(ctx, key)
	if err == nil {
		t.pools[key] = defaults
	}
	return defaults, err
}

// effective is the idle timeout that is kept; 0 or less means never.
func effective(idle time.Duration) time.Duration {
	if idle <= 0 {
		return 0
	}
	return max(idle, leastIdle)
}

func (t *timeouts) readPool(ctx context.Context, key types.NamespacedName) (poolDefaults, error) {
	pool := &v1alpha1.SandboxPool{}
	if err := t.reader.Get(ctx, key, pool, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
		return poolDefaults{}, nil
	} else if err != nil {
		return poolDefaults{}, fmt.Errorf("reading pool %s: %w", key, err)
	}
	found := poolDefaults{pool: pool, template: pool.Spec.Template}
	if ref := pool.Spec.TemplateRef; ref != nil {
		template := &v1alpha1.SandboxTemplate{}
		err := t.reader.Get(ctx, client.ObjectKey{Name: ref.Name}, template, client.UnsafeDisableDeepCopy)
		if err == nil {
			found.template = &template.Spec
		} else if !apierrors.IsNotFound(err) {
			return poolDefaults{}, fmt.Errorf("reading template %s: %w", ref.Name, err)
		}
	}
	return found, nil
}
