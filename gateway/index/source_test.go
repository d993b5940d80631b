package index

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlane/sandlane/test/bubble"
)

// fakeServer serves lists and watches of pods from the test, to a Reflector.
type fakeServer struct {
	mu       sync.Mutex
	list     corev1.PodList
	watch    *watch.FakeWatcher // the latest
	requests []string
	// streaming: an initial list may be streamed.
	streaming bool
}

func (f *fakeServer) lw() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			consistent(&o)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.requests = append(f.requests, "list from "+o.ResourceVersion)
			return f.list.DeepCopy(), nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			consistent(&o)
			f.mu.Lock()
			defer f.mu.Unlock()
			streamed := o.SendInitialEvents != nil && *o.SendInitialEvents
			if streamed && !f.streaming {
				return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
			}
			kind := "watch from "
			if streamed {
				kind = "stream from "
			}
			f.requests = append(f.requests, kind+o.ResourceVersion)
			f.watch = watch.NewFakeWithChanSize(100, false)
			if streamed {
				for _, p := range f.list.Items {
					f.watch.Add(&p)
				}
				end := bookmark(f.list.ResourceVersion)
				end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
				f.watch.Action(watch.Bookmark, end)
			}
			return f.watch, nil
		},
	}
}

// asked returns the requests so far.
func (f *fakeServer) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

func bookmark(rv string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv}}
}

func (f *fakeServer) set(rv string, pods ...*corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: rv}}
	for _, p := range pods {
		f.list.Items = append(f.list.Items, *p)
	}
}

// withReflector runs the pods' source against a fake server, in virtual time.
func withReflector(t *testing.T, streaming bool, test func(t *testing.T, f *fakeServer, j *journal, s *source)) {
	bubble.Test(t, func(t *testing.T) {
		f := &fakeServer{streaming: streaming}
		f.set("10", claimedPod("p", "s", "c", "10.0.0.1", 5), idlePod("q", "10.0.0.2", 6))
		var j journal
		x, _, _, _ := unstarted(j.hooks())
		s := x.sources[0]
		s.lw = f.lw()
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.start(ctx) })
		must(t, s.wait(ctx, 1))
		synctest.Wait()
		test(t, f, &j, s)
		stop()
		running.Wait()
	})
}

func TestReflector(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		withReflector(t, streaming, func(t *testing.T, f *fakeServer, j *journal, s *source) {
			first := []string{"list from ", "watch from 10"}
			if streaming {
				first = []string{"stream from "}
			}
			if !slices.Equal(f.asked(), first) {
				t.Errorf("streaming %v: requests %q, want %q", streaming, f.asked(), first)
			}
			got := j.take()
			if len(got) != 3 || got[2] != "seen 10" {
				t.Errorf("first list: %q", got)
			}
			// Hooks of an event come before its progress; bookmarks are progress too.
			f.watch.Modify(edit(claimedPod("p", "s", "c", "10.0.0.1", 11), phaseOf("stopping")))
			f.watch.Action(watch.Bookmark, bookmark("40"))
			f.watch.Delete(idlePod("q", "10.0.0.2", 41))
			synctest.Wait()
			want := []string{"changed s", "settled s", "seen 12", "seen 40", "unavailable ns/pool uid-q", "seen 41"}
			if got := j.take(); !slices.Equal(got, want) {
				t.Errorf("hooks %q, want %q", got, want)
			}
			// A watch that breaks is resumed from where it was.
			f.watch.Stop()
			time.Sleep(time.Minute)
			synctest.Wait()
			if last := f.asked()[len(f.asked())-1]; last != "watch from 41" && last != "stream from 41" {
				t.Errorf("after a broken watch: requests %q", f.asked())
			}
		})
	}
}

// A watch that is too old is followed by a list, and what vanished meanwhile
// causes the hooks of a delete before the progress.
func TestReflectorExpired(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		withReflector(t, streaming, func(t *testing.T, f *fakeServer, j *journal, _ *source) {
			j.take()
			f.set("50", idlePod("q", "10.0.0.2", 6))
			status := apierrors.NewResourceExpired("too old").Status()
			f.watch.Error(&status)
			time.Sleep(time.Minute)
			synctest.Wait()
			if got, want := j.take(), []string{"available q", "changed s", "settled s", "seen 50"}; !slices.Equal(got, want) {
				t.Errorf("hooks %q, want %q", got, want)
			}
		})
	}
}

// Relist lists anew and consistently, though the watch is fine, and does not
// return before the list is applied.
func TestRelist(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		withReflector(t, streaming, func(t *testing.T, f *fakeServer, j *journal, s *source) {
			j.take()
			f.set("60")
			n := len(f.asked())
			must(t, s.wait(t.Context(), s.restart()))
			if got := j.take(); len(got) != 4 || got[3] != "seen 60" {
				t.Errorf("hooks at the return: %q", got)
			}
			if first := f.asked()[n]; !strings.HasSuffix(first, "from ") {
				t.Errorf("relisted by %q, want a consistent read", first)
			}
		})
	}
}

func TestWaitGivesUp(t *testing.T) {
	x, _, _, _ := unstarted(Hooks{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.WaitSynced(ctx); !errors.Is(err, context.Canceled) || x.Synced() {
		t.Errorf("WaitSynced = %v", err)
	}
	if err := x.Relist(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Relist = %v", err)
	}
}

// A list that is older than what was seen says that the API server has gone back: what
// it shows is applied and does not count, the hook is told, and the list that begins
// after the hook counts.
func TestRelistOfARewoundServer(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		withReflector(t, streaming, func(t *testing.T, f *fakeServer, j *journal, s *source) {
			f.watch.Action(watch.Bookmark, bookmark("1000"))
			synctest.Wait()
			j.take()
			f.set("7", idlePod("q", "10.0.0.2", 6))
			n := len(f.asked())
			must(t, s.wait(t.Context(), s.restart()))
			synctest.Wait() // the watch that follows the list is there
			got, want := j.take(), []string{"available q", "changed s", "settled s", "rewound", "available q", "seen 7"}
			if !slices.Equal(got, want) {
				t.Errorf("streaming %v: hooks %q, want %q", streaming, got, want)
			}
			lists := 0
			for _, r := range f.asked()[n:] {
				if strings.HasSuffix(r, "from ") {
					lists++
				}
			}
			if lists != 2 {
				t.Errorf("streaming %v: requests %q, want two consistent lists", streaming, f.asked()[n:])
			}
			f.watch.Delete(idlePod("q", "10.0.0.2", 8))
			synctest.Wait()
			if got, want := j.take(), []string{"unavailable ns/pool uid-q", "seen 8"}; !slices.Equal(got, want) {
				t.Errorf("streaming %v: afterwards hooks %q, want %q", streaming, got, want)
			}
		})
	}
}

// An index whose API server was away lists again within four seconds of its return.
func TestReflectorComesBackSoon(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var asked []time.Time
		var j journal
		x, _, _, _ := unstarted(j.hooks())
		s := x.sources[0]
		s.lw = &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				asked = append(asked, time.Now())
				return nil, syscall.ECONNREFUSED
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				asked = append(asked, time.Now()) // a list may be streamed
				return nil, syscall.ECONNREFUSED
			},
		}
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		s.start(ctx)
		if len(asked) < 150 {
			t.Errorf("it asked %d times in ten minutes", len(asked))
		}
		for i := 1; i < len(asked); i++ {
			if rest := asked[i].Sub(asked[i-1]); rest > 4*time.Second {
				t.Errorf("it did not ask for %v", rest)
			}
		}
	})
}
