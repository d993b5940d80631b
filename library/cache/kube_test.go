package cache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/library/cache"
	"github.com/sandlane/sandlane/test/kubetest"
)

// onKube is a Cache of one namespace of a real API server, which runs. Before it is made,
// wrap may change how it connects.
func onKube(t *testing.T, config cache.Config, wrap func(http.RoundTripper) http.RoundTripper) *cache.Cache {
	t.Helper()
	cfg := kubetest.Config(t)
	if wrap != nil {
		cfg.Wrap(wrap)
	}
	mgr, err := cache.NewControllerManager(cfg, cache.ManagerOptions{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	c, err := cache.NewCache(mgr)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Stop(ctx) })
	return c
}

// runningOnKube makes a sandbox whose status says that it runs.
func runningOnKube(t *testing.T, ns string) *v1alpha1.Sandbox {
	t.Helper()
	api := controller{kubetest.Client(t)}
	s := sandbox(ns, kubetest.Name("s"))
	if err := api.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := api.report(t.Context(), s.Name); err != nil {
		t.Fatal(err)
	}
	s, err := api.fetch(t.Context(), s.Name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The selectors of BuildCacheConfig are ones that a real API server takes, of every kind.
func TestInformersOfOneNamespace(t *testing.T) {
	t.Parallel()
	api, ns, other := kubetest.Client(t), kubetest.Namespace(t), kubetest.Namespace(t)
	for _, in := range []string{ns, other} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "pod", Labels: map[string]string{v1alpha1.LabelPool: "p"}}}
		pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "i", Env: []corev1.EnvVar{{Name: "A", Value: "secret"}}}}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "secret"}}
		cp := checkpoint(in, "cp", "")
		cp.Spec = v1alpha1.CheckpointSpec{
			SandboxID: "s", SandboxUID: "u", ClaimID: "c",
			Contents: []v1alpha1.CheckpointContent{v1alpha1.CheckpointFilesystem}, Cause: v1alpha1.CheckpointSnapshot,
		}
		for _, o := range []client.Object{pod, secret, cp} {
			if err := api.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	s, elsewhere := runningOnKube(t, ns), runningOnKube(t, other)
	c := onKube(t, cache.Config{Namespace: ns, SystemNamespace: other, PersistentVolumes: true}, nil)
	if _, err := c.GetClaimedSandbox(t.Context(), cache.GetClaimedSandboxOptions{Namespace: ns, SandboxID: s.Name}); err != nil {
		t.Error(err)
	}
	if all, err := c.ListSandboxes(t.Context(), cache.ListSandboxesOptions{Namespace: other}); err != nil || len(all) != 0 {
		t.Errorf("of another namespace than %s's: %v, %v", elsewhere.Name, names(all), err)
	}
	for what, want := range map[client.ObjectList][]string{
		&v1alpha1.SandboxList{}: {"/" + s.Name}, &corev1.PodList{}: {ns + "/pod"}, &corev1.SecretList{}: {other + "/secret"},
		&v1alpha1.CheckpointList{}: {ns + "/cp"}, &v1alpha1.SandboxPoolList{}: nil, &v1alpha1.SandboxEnvList{}: nil,
		&v1alpha1.SandboxTemplateList{}: nil, &corev1.PersistentVolumeList{}: nil, &corev1.ConfigMapList{}: nil,
	} {
		if err := c.GetClient().List(t.Context(), what); err != nil {
			t.Errorf("%T: %v", what, err)
			continue
		}
		if got := listed(what); want != nil && !slices.Equal(got, want) {
			t.Errorf("%T: %v, want %v", what, got, want)
		}
	}
}

func listed(list client.ObjectList) (all []string) {
	switch l := list.(type) {
	case *v1alpha1.SandboxList:
		for i := range l.Items {
			all = append(all, "/"+l.Items[i].Name)
		}
	case *corev1.PodList:
		for i := range l.Items {
			all = append(all, l.Items[i].Namespace+"/"+l.Items[i].Name)
		}
	case *corev1.SecretList:
		for i := range l.Items {
			all = append(all, l.Items[i].Namespace+"/"+l.Items[i].Name)
		}
	case *v1alpha1.CheckpointList:
		for i := range l.Items {
			all = append(all, l.Items[i].Namespace+"/"+l.Items[i].Name)
		}
	}
	return all
}

// A thousand tasks at a time begin to wait while the change that they wait for is written:
// none misses it. The poll is off. SANDLANE_STORM=full makes it 10^5 such races.
func TestNoWakeUpIsLost(t *testing.T) {
	t.Parallel()
	const sandboxes, waiters = 8, 125
	rounds := 6
	if os.Getenv("SANDLANE_STORM") == "full" {
		rounds = 100
	}
	ns := kubetest.Namespace(t)
	c := onKube(t, cache.Config{Namespace: ns}, nil)
	cache.SetPoll(c, time.Hour)
	api := controller{kubetest.Client(t)}
	var all sync.WaitGroup
	for range sandboxes {
		s := runningOnKube(t, ns)
		all.Go(func() {
			for round := range rounds {
				var err error
				if s, err = race(t.Context(), c, api, s, round%2 == 0, waiters); err != nil {
					t.Errorf("round %d: %v", round, err)
					return
				}
			}
		})
	}
	all.Wait()
	if open := c.GetWaitHooks().List(); len(open) != 0 {
		t.Errorf("held: %+v", open)
	}
}

// race makes tasks wait for one change, from before it until after it, and returns the
// sandbox that they returned.
func race(ctx context.Context, c *cache.Cache, api controller, s *v1alpha1.Sandbox, paused bool, waiters int) (*v1alpha1.Sandbox, error) {
	ask := c.NewSandboxPauseTask
	if !paused {
		ask = c.NewSandboxResumeTask
	}
	results := make(chan result, waiters)
	for range waiters {
		task, err := ask(ctx, s)
		if err != nil {
			return nil, err
		}
		after := time.After(rand.N(15 * time.Millisecond))
		go func() {
			<-after
			s, err := task.Wait(time.Minute)
			results <- result{s, err}
		}()
	}
	written := s.Generation + 1
	if err := errors.Join(flip(ctx, api, s, paused), api.report(ctx, s.Name)); err != nil {
		return nil, err
	}
	var seen *v1alpha1.Sandbox
	for range waiters {
		r := <-results
		if r.err != nil {
			return nil, r.err
		}
		if seen = r.s; seen.Generation != written || seen.Spec.Paused != paused {
			return nil, fmt.Errorf("paused %v of generation %d, want %v of %d", seen.Spec.Paused, seen.Generation, paused, written)
		}
	}
	return seen, nil
}

// Opposite tasks of one process never cross: while one is held nothing else writes, so each
// sees the status of its own write.
func TestOppositeTasks(t *testing.T) {
	t.Parallel()
	ns := kubetest.Namespace(t)
	c, api, id := onKube(t, cache.Config{Namespace: ns}, nil), controller{kubetest.Client(t)}, runningOnKube(t, ns).Name
	var flips, conflicts atomic.Int32
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for flips.Load() < 60 && !t.Failed() {
				s, err := api.fetch(t.Context(), id)
				if err != nil {
					t.Error(err)
					return
				}
				paused := i%2 == 0
				ask := c.NewSandboxPauseTask
				if !paused {
					ask = c.NewSandboxResumeTask
				}
				task, err := ask(t.Context(), s)
				if errors.Is(err, cache.ErrWaitTaskConflict) {
					conflicts.Add(1)
					continue
				} else if err != nil {
					t.Error(err)
					return
				}
				if s.Spec.Paused == paused || flip(t.Context(), api, s, paused) != nil {
					task.Release() // another one of the same action has written it
					continue
				}
				flips.Add(1)
				if err := api.report(t.Context(), id); err != nil {
					t.Error(err)
				}
				if got, err := task.Wait(time.Minute); err != nil || got.Generation != s.Generation+1 || got.Spec.Paused != paused {
					t.Errorf("paused %v: %+v, %v", paused, got, err)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d writes, %d conflicts", flips.Load(), conflicts.Load())
	if open := c.GetWaitHooks().List(); len(open) != 0 || conflicts.Load() == 0 {
		t.Errorf("held: %+v; %d conflicts", open, conflicts.Load())
	}
}

// If a watch is open but sends no events any more, a task waits until the poll.
func TestInformerCutOff(t *testing.T) {
	t.Parallel()
	ns := kubetest.Namespace(t)
	s := runningOnKube(t, ns)
	var cut atomic.Bool
	c := onKube(t, cache.Config{Namespace: ns}, func(rt http.RoundTripper) http.RoundTripper { return cuts{rt, &cut} })
	cache.SetPoll(c, 200*time.Millisecond)
	api := controller{kubetest.Client(t)}
	task, err := c.NewSandboxPauseTask(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	cut.Store(true)
	if err := errors.Join(flip(t.Context(), api, s, true), api.report(t.Context(), s.Name)); err != nil {
		t.Fatal(err)
	}
	got, err := task.Wait(30 * time.Second)
	if err != nil || !got.Spec.Paused {
		t.Fatalf("%+v, %v", got, err)
	}
	behind, err := c.SandboxUpdateFunc(t.Context(), s)
	if err != nil || behind.Spec.Paused {
		t.Errorf("the informer has heard of it: %+v, %v", behind, err)
	}
}

// cuts silences watches once cut is set.
type cuts struct {
	http.RoundTripper
	cut *atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (x cuts) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := x.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "" {
		answer.Body = &silent{ReadCloser: answer.Body, cut: x.cut, done: r.Context().Done()}
	}
	return answer, err
}

type silent struct {
	io.ReadCloser
	cut  *atomic.Bool
	done <-chan struct{}
}

// Read implements io.Reader.
func (s *silent) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.cut.Load() {
		<-s.done
		return 0, io.EOF
	}
	return n, err
}
