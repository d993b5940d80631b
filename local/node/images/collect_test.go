package images

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/sandlane/sandlane/filelock"
)

// Images that are not held go once there are too many bytes, the longest unused first; one that
// is held stays, also for another process, and one that is gone is pulled again.
func TestCollect(t *testing.T) {
	s := newShop(t, Options{Keep: 3 * (bytesOfFile + 1)})
	one := func(name string) string {
		return s.push(name+":1", imageOf(t, layerOf(t, file{name: "v", content: name})))
	}
	ensure := func(ref string) *Image {
		t.Helper()
		image, err := s.store.Ensure(t.Context(), ref, IfNotPresent, nil)
		if err != nil {
			t.Fatal(err)
		}
		return image
	}
	there := func(image *Image) bool {
		_, err := os.Stat(image.Root + "/v")
		return err == nil
	}
	a, b, c := ensure(one("a")), ensure(one("b")), ensure(one("c"))
	again := ensure(one("a")) // the last that was used
	for _, image := range []*Image{a, b, c} {
		image.Release()
	}
	d := ensure(one("d"))
	if !there(a) || there(b) || !there(c) || !there(d) {
		t.Errorf("after one too many: a %v, b %v, c %v, d %v; only b may be gone", there(a), there(b), there(c), there(d))
	}
	other, err := New(Options{Dir: s.dir, Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.collect(); err != nil {
		t.Fatal(err)
	}
	if !there(a) || there(c) || !there(d) {
		t.Errorf("with no room: a %v, c %v, d %v; what is held stays", there(a), there(c), there(d))
	}
	again.Release()
	d.Release()
	if err := other.collect(); err != nil {
		t.Fatal(err)
	}
	s.nothingLeft()
	// What another process is about to name is left to it; once it is killed, it is removed.
	unfinished := s.dir + "/sha256-other" + unfinishedEnd
	kill, err := filelock.Lock(t.Context(), s.dir+"/sha256-other.lock", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(unfinished, 0o755), writeSize(unfinished, 1<<40), other.collect()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(unfinished); err != nil {
		t.Error("an image that is being unpacked was removed:", err)
	}
	kill()
	if err := other.collect(); err != nil {
		t.Fatal(err)
	}
	s.nothingLeft()
	image := ensure(one("a"))
	s.want(image.Root+"/v", "a")
	image.Release()
}

// Many pulls and removals at once: what Ensure returns is there until it is released.
func TestCollectWhilePulling(t *testing.T) {
	s := newShop(t, Options{Keep: 1})
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		ref := s.push(name+":1", imageOf(t, layerOf(t, file{name: "v", content: name})))
		for range 3 {
			all.Go(func() {
				for range 20 {
					image, err := s.store.Ensure(t.Context(), ref, IfNotPresent, nil)
					if err != nil {
						t.Error(err)
						return
					}
					s.want(image.Root+"/v", name)
					image.Release()
				}
			})
		}
	}
	all.Wait()
}
