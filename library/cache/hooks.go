package cache

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The kinds of objects that tasks wait for.
const (
	KindSandbox    = "Sandbox"
	KindCheckpoint = "Checkpoint"
)

// WaitAction names what a task waits for.
type WaitAction string

// The actions.
const (
	ActionPause      WaitAction = "pause"
	ActionResume     WaitAction = "resume"
	ActionReady      WaitAction = "ready"
	ActionCheckpoint WaitAction = "checkpoint"
)

// WaitKey names the object that a task waits for. With the UID it names no later object of
// the same name.
type WaitKey struct {
	Kind string
	types.NamespacedName
	UID types.UID
}

func keyOf(kind string, o client.Object) WaitKey {
	return WaitKey{kind, client.ObjectKeyFromObject(o), o.GetUID()}
}

// WaitHook is one hook in the list of WaitHooks.List.
type WaitHook struct {
	Key    WaitKey
	Action WaitAction
	// Tasks is how many tasks hold the hook.
	Tasks int
}

// WaitHooks are the hooks that tasks hold. Safe for concurrent use.
type WaitHooks struct {
	mu   sync.Mutex
	open map[WaitKey]*hook
}

// hook is shared by the tasks of one action on one object. WaitHooks.mu guards all of it.
type hook struct {
	action  WaitAction
	tasks   int
	changed chan struct{} // closed, and replaced, at each change of the object
	gone    bool          // the object was deleted; that is final
}

func newWaitHooks() *WaitHooks { return &WaitHooks{open: map[WaitKey]*hook{}} }

// List returns all hooks, in no particular order.
func (x *WaitHooks) List() []WaitHook {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]WaitHook, 0, len(x.open))
	for key, h := range x.open {
		all = append(all, WaitHook{key, h.action, h.tasks})
	}
	return all
}

// acquire makes a task hold the hook of an action on an object. The task must call release
// once.
func (x *WaitHooks) acquire(key WaitKey, action WaitAction) (*hook, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.open[key]
	switch {
	case h == nil:
		h = &hook{action: action, changed: make(chan struct{})}
		x.open[key] = h
	case h.action != action:
		return nil, fmt.Errorf("%w: %s", ErrWaitTaskConflict, h.action)
	}
	h.tasks++
	return h, nil
}

func (x *WaitHooks) leave(key WaitKey, h *hook) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h.tasks--; h.tasks == 0 {
		delete(x.open, key)
	}
}

// next returns the channel that the object's next change closes, and whether the object was
// deleted. A read of the informer that begins now sees all earlier changes.
func (x *WaitHooks) next(h *hook) (changed <-chan struct{}, gone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return h.changed, h.gone
}

// notify wakes the tasks that wait for an object, because it has changed or was deleted.
func (x *WaitHooks) notify(key WaitKey, gone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.open[key]; h != nil {
		h.gone = h.gone || gone
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// handler returns a handler that calls notify for an informer's events, which come after the
// informer's store has changed.
func (x *WaitHooks) handler(kind string) toolscache.ResourceEventHandler {
	notify := func(obj any, gone bool) {
		if o, ok := obj.(client.Object); ok {
			x.notify(keyOf(kind, o), gone)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { notify(obj, false) },
		UpdateFunc: func(was, is any) {
			a, aok := was.(client.Object)
			b, bok := is.(client.Object)
			if aok && bok && a.GetUID() != b.GetUID() {
				notify(was, true) // the object was deleted and made anew between two lists of the informer
			}
			notify(is, false)
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			notify(obj, true)
		},
	}
}
