package cache

import (
	"context"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// object is one Sandbox as an informer and the API server show it, with a hook of the
// package in between. Its generation says how often it has changed.
type object struct {
	c *Cache

	mu             sync.Mutex
	informed, live *v1alpha1.Sandbox // nil if there is none
	liveErr        error
	reads          int
	looks          int
	during         func() // called at the end of each read from the informer
}

func sandboxAt(uid types.UID, generation int64) *v1alpha1.Sandbox {
	s := &v1alpha1.Sandbox{}
	s.Name, s.UID, s.Generation = "s", uid, generation
	return s
}

func newObject() *object {
	o := &object{c: &Cache{hooks: newWaitHooks(), poll: pollInterval, stopped: make(chan struct{})}}
	o.informed, o.live = sandboxAt("u", 1), sandboxAt("u", 1)
	return o
}

var errNotThere = apierrors.NewNotFound(schema.GroupResource{Resource: "sandboxes"}, "s")

// task waits until the object's generation is want.
func (o *object) task(ctx context.Context, action WaitAction, want int64) *WaitTask[*v1alpha1.Sandbox] {
	return newWaitTask(ctx, o.c, keyOf(KindSandbox, sandboxAt("u", 1)), waitKind[*v1alpha1.Sandbox]{
		action: action,
		informed: func(context.Context) (*v1alpha1.Sandbox, error) {
			o.mu.Lock()
			s, during := o.informed, o.during
			o.looks++
			o.mu.Unlock()
			if during != nil {
				during()
			}
			if s == nil {
				return nil, errNotThere
			}
			return s, nil
		},
		live: func(context.Context) (*v1alpha1.Sandbox, error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.reads++
			switch {
			case o.liveErr != nil:
				return nil, o.liveErr
			case o.live == nil:
				return nil, errNotThere
			}
			return o.live, nil
		},
		reached:  func(s *v1alpha1.Sandbox) (bool, error) { return s.Generation == want, nil },
		describe: describeSandbox,
	})
}

// inform changes what the informer shows, and then sends the event, in the order in which
// informers do.
func (o *object) inform(s *v1alpha1.Sandbox) {
	o.mu.Lock()
	was := o.informed
	o.informed = s
	o.mu.Unlock()
	switch h := o.c.hooks.handler(KindSandbox); {
	case s == nil:
		h.OnDelete(was)
	case was == nil:
		h.OnAdd(s, false)
	default:
		h.OnUpdate(was, s)
	}
}

func (o *object) counts() (looks, reads int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.looks, o.reads
}

// waiting begins a Wait and returns a channel with its error.
func waiting(t *WaitTask[*v1alpha1.Sandbox], timeout time.Duration) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := t.Wait(timeout)
		done <- err
	}()
	return done
}

// held fails the test if hooks are held, or not.
func (o *object) held(t *testing.T, want int) {
	t.Helper()
	if open := o.c.hooks.List(); len(open) != want {
		t.Errorf("hooks held: %+v, want %d", open, want)
	}
}
