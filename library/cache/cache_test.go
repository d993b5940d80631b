package cache_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/library/cache"
	"github.com/sandlane/sandlane/library/cache/cachetest"
	"github.com/sandlane/sandlane/test/kubetest"
)

// sandbox is one that is bound to a pod.
func sandbox(namespace, id string) *v1alpha1.Sandbox {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id}}
	s.Spec.Namespace, s.Spec.Pool = namespace, "p"
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: "c", PodName: "pod", PodUID: "u"}
	return s
}

// After Stop all methods fail, also those of clients that were got before, and Run does not
// start the Cache again.
func TestStop(t *testing.T) {
	s := sandbox("n", "s")
	c, _ := cachetest.New(t, cache.Config{}, s)
	api, live := c.GetClient(), c.GetAPIReader()
	s, err := c.GetClaimedSandbox(t.Context(), cache.GetClaimedSandboxOptions{Namespace: "n", SandboxID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	task, err := c.NewSandboxPauseTask(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := task.Wait(time.Minute)
		done <- err
	}()
	c.Stop(t.Context())
	c.Stop(t.Context())
	ctx, key := t.Context(), client.ObjectKeyFromObject(s)
	for what, do := range map[string]func() error{
		"a task that waits": func() error { return <-done },
		"Run":               func() error { return c.Run(ctx) },
		"a new task":        func() error { _, err := c.NewSandboxPauseTask(ctx, s); return err },
		"a lazy task":       func() error { _, err := c.NewSandboxWaitReadyTask(ctx, s).Wait(time.Minute); return err },
		"an update":         func() error { _, err := c.SandboxUpdateFunc(ctx, s); return err },
		"a read": func() error {
			_, err := c.GetClaimedSandbox(ctx, cache.GetClaimedSandboxOptions{Namespace: "n", SandboxID: "s"})
			return err
		},
		"a list": func() error {
			_, err := c.ListSandboxPools(ctx, cache.ListSandboxPoolsOptions{Namespace: "n"})
			return err
		},
		"a live read":      func() error { return live.Get(ctx, key, s) },
		"a live list":      func() error { return live.List(ctx, &v1alpha1.SandboxList{}) },
		"the client":       func() error { return api.Get(ctx, key, s) },
		"its lists":        func() error { return api.List(ctx, &v1alpha1.SandboxList{}) },
		"a create":         func() error { return api.Create(ctx, sandbox("n", "t")) },
		"a write":          func() error { return api.Update(ctx, s) },
		"a patch":          func() error { return api.Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte("{}"))) },
		"a deletion":       func() error { return api.Delete(ctx, s) },
		"a large deletion": func() error { return api.DeleteAllOf(ctx, s) },
		"a status":         func() error { return api.Status().Update(ctx, s) },
		"a status patch": func() error {
			return api.Status().Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte("{}")))
		},
		"the new client": func() error { return c.GetClient().Get(ctx, key, s) },
	} {
		if err := do(); !errors.Is(err, cache.ErrStopped) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The context of Run ends a Cache as Stop does, and it runs once.
func TestRunOnce(t *testing.T) {
	c, err := cache.NewCache(cachetest.GetMockManager(t, cache.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(ctx); err == nil || errors.Is(err, cache.ErrStopped) {
		t.Errorf("it runs twice: %v", err)
	}
	options := cache.ListSandboxesOptions{Namespace: "n"}
	if _, err := c.ListSandboxes(t.Context(), options); err != nil {
		t.Error(err)
	}
	cancel()
	kubetest.Eventually(t, "the end", func() error {
		if _, err := c.ListSandboxes(t.Context(), options); !errors.Is(err, cache.ErrStopped) {
			return errors.New("it can be read")
		}
		return nil
	})
	c.Stop(t.Context())
}

// A Cache that never ran can be stopped, and cannot be run then.
func TestStopBeforeRun(t *testing.T) {
	c, err := cache.NewCache(cachetest.GetMockManager(t, cache.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	c.Stop(t.Context())
	if err := c.Run(t.Context()); !errors.Is(err, cache.ErrStopped) {
		t.Error(err)
	}
}

// While the API server does not answer, Run and Stop still end with their context, and leave
// no goroutine behind (TestMain checks that).
func TestRunWithoutAnAPIServer(t *testing.T) {
	made := func() *cache.Cache {
		mgr := cachetest.GetMockManager(t, cache.Config{}) // for its scheme
		cfg := &rest.Config{Host: "http://away.invalid", Transport: away{}}
		real, err := cache.NewControllerManager(cfg, cache.ManagerOptions{Manager: ctrl.Options{
			Scheme:         mgr.GetScheme(),
			MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mgr.GetRESTMapper(), nil },
		}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := cache.NewCache(real)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	run := func(ctx context.Context, c *cache.Cache) <-chan error {
		ran := make(chan error, 1)
		go func() { ran <- c.Run(ctx) }()
		return ran
	}
	ends := func(what string, ran <-chan error) {
		t.Helper()
		select {
		case err := <-ran:
			if !errors.Is(err, cache.ErrStopped) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: it does not end", what)
		}
	}
	c := made()
	ends("its context ends", run(ctx, c))
	c.Stop(t.Context())

	stopped := made()
	ran := run(t.Context(), stopped)
	stopped.Stop(t.Context())
	ends("it is stopped", ran)
	stopped.Stop(t.Context())
}

type away struct{}

// RoundTrip implements http.RoundTripper.
func (away) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("it is away") }

// The program starts and ends a foreign manager: the Cache ends with it, and can be stopped
// without ending it.
func TestForeignManager(t *testing.T) {
	start := func(t *testing.T) (*cache.Cache, context.CancelFunc, <-chan error) {
		mgr := cachetest.GetMockManager(t, cache.Config{}, sandbox("n", "s")).Manager
		c, err := cache.NewCache(mgr)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); err == nil {
			t.Error("the Cache runs a manager that is not its own")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			t.Fatal("the manager does not start")
		}
		t.Cleanup(func() {
			cancel()
			if err, ok := <-ended; ok && err != nil {
				t.Error(err)
			}
		})
		return c, cancel, ended
	}
	read := func(c *cache.Cache) error {
		_, err := c.GetClaimedSandbox(t.Context(), cache.GetClaimedSandboxOptions{Namespace: "n", SandboxID: "s"})
		return err
	}
	t.Run("the manager ends", func(t *testing.T) {
		c, cancel, _ := start(t)
		if err := read(c); err != nil {
			t.Error(err)
		}
		cancel()
		kubetest.Eventually(t, "the end", func() error {
			if err := read(c); !errors.Is(err, cache.ErrStopped) || !strings.Contains(err.Error(), "its manager has ended") {
				return err
			}
			return nil
		})
	})
	t.Run("the Cache ends", func(t *testing.T) {
		c, _, ended := start(t)
		c.Stop(t.Context())
		if err := read(c); !errors.Is(err, cache.ErrStopped) {
			t.Error(err)
		}
		select {
		case err := <-ended:
			t.Errorf("the manager has ended, too: %v", err)
		default:
		}
	})
}

// A read of a kind that BuildCacheConfig leaves out is an error: it would start an informer
// of the whole cluster's objects.
func TestInformedKinds(t *testing.T) {
	named := func(o client.Object, namespace string) client.Object {
		o.SetNamespace(namespace)
		o.SetName("x")
		return o
	}
	objects := []client.Object{
		named(&corev1.Secret{}, "system"), named(&corev1.Secret{}, "n"), named(&corev1.ConfigMap{}, "system"),
		named(&corev1.PersistentVolume{}, ""), named(&corev1.Node{}, ""),
	}
	for _, c := range []struct {
		config            cache.Config
		informed, unknown []client.Object
	}{
		{cache.Config{}, nil, objects},
		{cache.Config{SystemNamespace: "system"}, []client.Object{objects[0], objects[2]}, []client.Object{objects[3], objects[4]}},
		{cache.Config{PersistentVolumes: true}, []client.Object{objects[3]}, []client.Object{objects[0], objects[2], objects[4]}},
	} {
		all, _ := cachetest.New(t, c.config, objects...)
		for _, o := range c.informed {
			if err := all.GetClient().Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Errorf("%+v: %T: %v", c.config, o, err)
			}
		}
		for _, o := range c.unknown {
			if err := all.GetClient().Get(t.Context(), client.ObjectKeyFromObject(o), o); err == nil || !strings.Contains(err.Error(), "is not cached") {
				t.Errorf("%+v: %T: %v", c.config, o, err)
			}
		}
		if c.config.SystemNamespace != "" {
			if err := all.GetClient().Get(t.Context(), client.ObjectKeyFromObject(objects[1]), &corev1.Secret{}); !apierrors.IsNotFound(err) {
				t.Errorf("a Secret of another namespace: %v", err)
			}
		}
	}
}

// The informer has only the pods of pools, without the fields that no reader needs and that
// may be secret.
func TestPods(t *testing.T) {
	pod := func(name string, labels map[string]string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Labels: labels}}
		p.Spec.Volumes = []corev1.Volume{{Name: "v"}}
		p.Spec.Containers = []corev1.Container{{
			Name: "main", Image: "i", Env: []corev1.EnvVar{{Name: "TOKEN", Value: "secret"}},
			Ports: []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}},
		}}
		return p
	}
	c, _ := cachetest.New(t, cache.Config{}, pod("ours", map[string]string{v1alpha1.LabelPool: "p"}), pod("other", nil))
	var pods corev1.PodList
	if err := c.GetClient().List(t.Context(), &pods); err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	p := pods.Items[0]
	if p.Name != "ours" || p.Spec.Volumes != nil || p.Spec.Containers[0].Env != nil || !v1alpha1.Freezable(&p.Spec) {
		t.Errorf("%+v", p.Spec)
	}
}

// Handlers are called for the objects that exist, for changes and for deletions, and again
// after an error.
func TestController(t *testing.T) {
	mgr := cachetest.GetMockManager(t, cache.Config{}, sandbox("n", "s"))
	c, err := cache.NewCache(mgr)
	if err != nil {
		t.Fatal(err)
	}
	calls, failed := make(chan *v1alpha1.Sandbox, 100), false
	err = c.GetSandboxController().AddHandler(func(_ context.Context, name types.NamespacedName, s *v1alpha1.Sandbox) error {
		if !failed {
			failed = true
			return errors.New("the first call fails")
		}
		if name.Name == "s" {
			calls <- s
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	pools := make(chan string, 100)
	if err := c.GetSandboxPoolController().AddHandler(func(_ context.Context, name types.NamespacedName, _ *v1alpha1.SandboxPool) error {
		pools <- name.String()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	defer c.Stop(t.Context())
	want := func(what string, ok func(*v1alpha1.Sandbox) bool) {
		t.Helper()
		for limit := time.After(10 * time.Second); ; {
			select {
			case s := <-calls:
				if ok(s) {
					return
				}
			case <-limit:
				t.Fatalf("%s: the handler was not called", what)
			}
		}
	}
	want("there", func(s *v1alpha1.Sandbox) bool { return s != nil && s.Spec.Env == "" })
	s := &v1alpha1.Sandbox{}
	if err := mgr.API().Get(t.Context(), types.NamespacedName{Name: "s"}, s); err != nil {
		t.Fatal(err)
	}
	s.Spec.Env = "e"
	if err := mgr.API().Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	want("changed", func(s *v1alpha1.Sandbox) bool { return s != nil && s.Spec.Env == "e" })
	if err := mgr.API().Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	want("deleted", func(s *v1alpha1.Sandbox) bool { return s == nil })
	if err := mgr.API().Create(t.Context(), &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}); err != nil {
		t.Fatal(err)
	}
	select {
	case name := <-pools:
		if name != "n/p" {
			t.Error(name)
		}
	case <-time.After(10 * time.Second):
		t.Error("the pool's handler was not called")
	}
}
