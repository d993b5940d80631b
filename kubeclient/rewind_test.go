package kubeclient

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/test/bubble"
)

// versions are those that a cache and the API server show.
type versions struct {
	cache.Informers
	cache.Informer
	client.Reader
	cached string

	mu    sync.Mutex // guards the rest
	live  string
	away  bool
	lists int
}

func (v *versions) set(live string, away bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.live, v.away = live, away
}

func (v *versions) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return v, nil
}

func (v *versions) LastSyncResourceVersion() string { return v.cached }

func (v *versions) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lists++
	if v.away {
		return errors.New("away")
	}
	list.SetResourceVersion(v.live)
	return nil
}

func TestRewindGuard(t *testing.T) {
	for name, c := range map[string]struct {
		cached, live string
		away, want   bool
	}{
		"the cache follows":                  {cached: "1000", live: "1001"},
		"it is up to date":                   {cached: "1000", live: "1000"},
		"it is ahead":                        {cached: "1000", live: "999", want: true},
		"ahead by a digit":                   {cached: "1000", live: "2", want: true},
		"nothing was listed yet":             {cached: "", live: "2"},
		"the API server does not answer":     {cached: "1000", live: "2", away: true},
		"a version that compares with none":  {cached: "1000", live: "x"},
		"a version without a number, cached": {cached: "x", live: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				v := &versions{cached: c.cached, live: c.live, away: c.away}
				g := &RewindGuard{Caches: v, Live: v, Kinds: []Kind{{&corev1.Pod{}, &corev1.PodList{}}}}
				ctx, cancel := context.WithTimeout(t.Context(), 5*rewindEvery)
				defer cancel()
				began := time.Now()
				err := g.Start(ctx)
				if errors.Is(err, ErrRewound) != c.want || !c.want && err != nil {
					t.Errorf("it returned %v", err)
				}
				if took := time.Since(began); c.want && took > 0 || !c.want && took != 5*rewindEvery {
					t.Errorf("after %v", took)
				}
			})
		})
	}
}

// A restore in the middle of its life is noticed at the next look that is answered.
func TestRewindGuardNoticesLater(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		v := &versions{cached: "1000", live: "1000"}
		g := &RewindGuard{Caches: v, Live: v, Kinds: []Kind{{&corev1.Pod{}, &corev1.PodList{}}}}
		ended := make(chan error, 1)
		go func() { ended <- g.Start(t.Context()) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		v.set("500", true)
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it ended with %v while the API server was away", err)
		default:
		}
		v.set("500", false)
		back := time.Now()
		if err := <-ended; !errors.Is(err, ErrRewound) || time.Since(back) > rewindEvery {
			t.Errorf("it ended with %v after %v", err, time.Since(back))
		}
		if v.lists > 14 {
			t.Errorf("%d lists in two minutes", v.lists)
		}
	})
}
