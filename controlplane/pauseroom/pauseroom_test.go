package pauseroom

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// world is a watch.
type world struct {
	sandboxes map[string]*v1alpha1.Sandbox
	err       error  // of each read of a sandbox
	looking   func() // called before each read of a sandbox
}

func (w *world) Paused(_ context.Context, namespace, pool string) (n int, err error) {
	for _, s := range w.sandboxes {
		if s.Spec.Paused && s.Spec.End == nil && s.Spec.Namespace == namespace && s.Spec.Pool == pool {
			n++
		}
	}
	return n, nil
}

func (w *world) PauseOrder(_ context.Context, id string) (types.UID, int64, error) {
	if w.looking != nil {
		w.looking()
	}
	s := w.sandboxes[id]
	if w.err != nil || s == nil || s.Spec.End != nil {
		return "", 0, w.err
	}
	return s.UID, s.Spec.PauseOrder, nil
}

func (w *world) show(name string, paused bool) {
	w.sandboxes[name].Spec.Paused = paused
	w.sandboxes[name].Spec.PauseOrder++
}

// of is a sandbox of a pool, which the watch shows.
func (w *world) of(namespace, pool, name string) *v1alpha1.Sandbox {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	s.Spec.Namespace, s.Spec.Pool = namespace, pool
	w.sandboxes[name] = s
	return s.DeepCopy()
}

func newWorld() *world { return &world{sandboxes: map[string]*v1alpha1.Sandbox{}} }

// taker returns a Rooms and what asks it for room in pools of most paused sandboxes.
func taker(t *testing.T, w Watch, most int) (*Rooms, func(s *v1alpha1.Sandbox, want bool)) {
	r := &Rooms{}
	return r, func(s *v1alpha1.Sandbox, want bool) {
		t.Helper()
		if ok, err := r.Take(t.Context(), w, s, most); ok != want || err != nil {
			t.Errorf("%s: %t, %v, want %t", s.Name, ok, err, want)
		}
	}
}

// Pauses at once, before the watch shows the first one, take no more room than the pool has; room
// comes back when a pause fails, is over, or goes with its sandbox.
func TestRooms(t *testing.T) {
	w := newWorld()
	rooms, take := taker(t, w, 1)
	a, b := w.of("n", "p", "a"), w.of("n", "p", "b")
	c, d := w.of("n", "elsewhere", "c"), w.of("elsewhere", "p", "d")
	show := func(s *v1alpha1.Sandbox, paused bool) {
		w.show(s.Name, paused)
		s.Spec.PauseOrder++
	}
	take(a, true)
	take(b, false)
	take(a, true) // again: it is the one that took it
	take(c, true) // of another pool
	take(d, true) // of another namespace
	rooms.GiveBack(a)
	take(b, false) // one of two calls has failed
	rooms.GiveBack(a)
	take(b, true)
	take(a, false)
	show(b, true)
	take(a, false) // by the watch
	show(b, false)
	take(a, true)
	show(a, true) // and between two looks
	show(a, false)
	take(b, true)
	delete(w.sandboxes, "b")
	take(a, true)
	w.sandboxes["a"].UID = "another"
	e, f := w.of("n", "p", "e"), w.of("n", "p", "f")
	take(e, true)
	take(f, false)
	w.sandboxes["e"].Spec.End = &v1alpha1.End{}
	take(f, true)
	if len(rooms.taken) != 3 {
		t.Errorf("left: %s", fmt.Sprint(rooms.taken))
	}
}

// A pause that is written counts though its call has returned, until the watch shows it; then it
// counts once.
func TestWatchIsBehind(t *testing.T) {
	w := newWorld()
	_, take := taker(t, w, 2)
	a, b, c := w.of("n", "p", "a"), w.of("n", "p", "b"), w.of("n", "p", "c")
	take(a, true)
	take(b, true)
	take(c, false)
	w.show("a", true)
	take(c, false)
	w.show("b", true)
	take(c, false)
	w.show("b", false)
	take(c, true)
}

// A pause that the watch shows while Take looks is counted.
func TestShownWhileCounting(t *testing.T) {
	w := newWorld()
	_, take := taker(t, w, 1)
	a, b := w.of("n", "p", "a"), w.of("n", "p", "b")
	take(a, true)
	w.looking = func() { w.show("a", true) }
	take(b, false)
}

// A later pause of a sandbox takes room of its own: the watch may show only its former one.
func TestPausedAgain(t *testing.T) {
	w := newWorld()
	_, take := taker(t, w, 1)
	a, b := w.of("n", "p", "a"), w.of("n", "p", "b")
	take(a, true)
	a.Spec.PauseOrder = 2 // read by the client: paused and resumed, which the watch does not show
	take(a, true)
	w.show("a", true)
	w.show("a", false)
	take(b, false)
	w.show("a", true)
	w.show("a", false)
	take(b, true)
}

// Another sandbox of the name gives back nothing.
func TestGiveBackOfAnother(t *testing.T) {
	w := newWorld()
	rooms, take := taker(t, w, 1)
	a, b := w.of("n", "p", "a"), w.of("n", "p", "b")
	another := a.DeepCopy()
	another.UID = "another"
	take(a, true)
	rooms.GiveBack(another)
	take(b, false)
}

func TestWatchFails(t *testing.T) {
	w := newWorld()
	rooms, take := taker(t, w, 2)
	a, b := w.of("n", "p", "a"), w.of("n", "p", "b")
	take(a, true)
	w.err = errors.New("no")
	if ok, err := rooms.Take(t.Context(), w, b, 2); ok || !errors.Is(err, w.err) {
		t.Errorf("%t, %v", ok, err)
	}
}
