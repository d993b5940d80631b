package cache_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/library/cache"
	"github.com/sandlane/sandlane/library/cache/cachetest"
)

func ownedBy(user string, o client.Object) client.Object {
	o.SetAnnotations(map[string]string{v1alpha1.AnnotationOwner: user})
	return o
}

func with(s *v1alpha1.Sandbox, change func(*v1alpha1.SandboxSpec)) *v1alpha1.Sandbox {
	change(&s.Spec)
	return s
}

func checkpoint(namespace, name, id string) *v1alpha1.Checkpoint {
	cp := &v1alpha1.Checkpoint{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	cp.Status.CheckpointID = id
	return cp
}

// pool is one that was made at that second.
func pool(namespace, name string, at int, change ...func(*v1alpha1.SandboxPool)) *v1alpha1.SandboxPool {
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, at, 0, time.UTC))
	p.Labels, p.Annotations = map[string]string{}, map[string]string{}
	for _, f := range change {
		f(p)
	}
	return p
}

func aliases(list string) func(*v1alpha1.SandboxPool) {
	return func(p *v1alpha1.SandboxPool) { p.Annotations[v1alpha1.AnnotationAliases] = list }
}

func memberOf(env string, idle int32) func(*v1alpha1.SandboxPool) {
	return func(p *v1alpha1.SandboxPool) { p.Labels[v1alpha1.LabelEnv], p.Status.Idle = env, idle }
}

func draining(p *v1alpha1.SandboxPool) { p.Annotations[v1alpha1.AnnotationDraining] = "true" }

func names[T client.Object](all []T) []string {
	list := []string{}
	for _, o := range all {
		list = append(list, o.GetName())
	}
	return list
}

// stored are the objects of TestReads.
func stored() []client.Object {
	return []client.Object{
		ownedBy("k1", sandbox("n", "bound")), ownedBy("k2", sandbox("n", "other")), ownedBy("k1", sandbox("m", "elsewhere")),
		with(sandbox("n", "unbound"), func(s *v1alpha1.SandboxSpec) { s.Binding, s.Pool = nil, "q" }),
		with(sandbox("n", "hibernated"), func(s *v1alpha1.SandboxSpec) { s.Binding, s.Paused = nil, true }),
		with(sandbox("n", "ended"), func(s *v1alpha1.SandboxSpec) { s.End = &v1alpha1.End{Reason: v1alpha1.EndReleased} }),
		with(sandbox("m", "in-m-of-q"), func(s *v1alpha1.SandboxSpec) { s.Pool = "q" }),
		ownedBy("k1", checkpoint("n", "cp-1", "id-1")), ownedBy("k2", checkpoint("n", "cp-2", "id-2")),
		ownedBy("k1", checkpoint("m", "cp-3", "id-3")), checkpoint("n", "cp-4", ""),
		pool("n", "p", 1, aliases("base, Python")), pool("n", "q", 2, aliases("python,p")), pool("m", "p", 0, aliases("base")),
		pool("n", "e-1", 3, memberOf("e", 0)), pool("n", "e-2", 4, memberOf("e", 2)), pool("n", "e-3", 5, memberOf("e", 9), draining),
		pool("n", "e", 0, draining), pool("n", "old", 0, draining, aliases("ancient")),
	}
}

// Each read returns only the objects of its namespace and its value, in order.
func TestReads(t *testing.T) {
	c, _ := cachetest.New(t, cache.Config{}, stored()...)
	one := func(o client.Object, err error) []string {
		if err != nil {
			return []string{err.Error()}
		}
		return []string{o.GetName()}
	}
	claimed := func(ns, id string) []string {
		s, err := c.GetClaimedSandbox(t.Context(), cache.GetClaimedSandboxOptions{Namespace: ns, SandboxID: id})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return one(s, err)
	}
	saved := func(ns, id string) []string {
		cp, err := c.GetCheckpoint(t.Context(), cache.GetCheckpointOptions{Namespace: ns, CheckpointID: id})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return one(cp, err)
	}
	picked := func(ns, name string) []string {
		p, err := c.PickSandboxPool(t.Context(), cache.PickSandboxPoolOptions{Namespace: ns, Name: name})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return one(p, err)
	}
	sandboxes := func(o cache.ListSandboxesOptions) []string {
		all, err := c.ListSandboxes(t.Context(), o)
		if err != nil {
			t.Error(err)
		}
		return names(all)
	}
	inPool := func(ns, pool string) []string {
		all, err := c.ListSandboxesInPool(t.Context(), cache.ListSandboxesInPoolOptions{Namespace: ns, Pool: pool})
		if err != nil {
			t.Error(err)
		}
		return names(all)
	}
	checkpoints := func(o cache.ListCheckpointsOptions) []string {
		all, err := c.ListCheckpoints(t.Context(), o)
		if err != nil {
			t.Error(err)
		}
		return names(all)
	}
	pools, err := c.ListSandboxPools(t.Context(), cache.ListSandboxPoolsOptions{Namespace: "m"})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct{ got, want []string }{
		"bound":                  {claimed("n", "bound"), []string{"bound"}},
		"paused without a pod":   {claimed("n", "hibernated"), []string{"hibernated"}},
		"of another namespace":   {claimed("m", "bound"), nil},
		"without a pod":          {claimed("n", "unbound"), nil},
		"ended":                  {claimed("n", "ended"), nil},
		"unknown":                {claimed("n", "none"), nil},
		"without an ID":          {claimed("n", ""), nil},
		"checkpoint":             {saved("n", "id-1"), []string{"cp-1"}},
		"checkpoint of another":  {saved("n", "id-3"), nil},
		"checkpoint by its name": {saved("n", "cp-1"), nil},
		"checkpoint without ID":  {saved("n", ""), nil},
		"pool":                   {picked("n", "p"), []string{"p"}},
		"alias of the oldest":    {picked("n", "PYTHON"), []string{"p"}},
		"alias of one":           {picked("n", "base"), []string{"p"}},
		"pool of a namespace":    {picked("m", "p"), []string{"p"}},
		"alias of another's":     {picked("m", "python"), nil},
		"env":                    {picked("n", "e"), []string{"e-2"}},
		"draining":               {picked("n", "old"), nil},
		"alias of one draining":  {picked("n", "ancient"), nil},
		"all":                    {sandboxes(cache.ListSandboxesOptions{Namespace: "n"}), []string{"bound", "ended", "hibernated", "other", "unbound"}},
		"of a user":              {sandboxes(cache.ListSandboxesOptions{Namespace: "n", User: "k1"}), []string{"bound"}},
		"of a user elsewhere":    {sandboxes(cache.ListSandboxesOptions{Namespace: "m", User: "k2"}), []string{}},
		"in a pool":              {inPool("n", "q"), []string{"unbound"}},
		"in a pool elsewhere":    {inPool("m", "q"), []string{"in-m-of-q"}},
		"checkpoints":            {checkpoints(cache.ListCheckpointsOptions{Namespace: "n"}), []string{"cp-1", "cp-2", "cp-4"}},
		"checkpoints of a user":  {checkpoints(cache.ListCheckpointsOptions{Namespace: "n", User: "k1"}), []string{"cp-1"}},
		"pools":                  {names(pools), []string{"p"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
}

// A read without a namespace fails, and does not return the objects of all namespaces.
func TestNamespaceIsNeeded(t *testing.T) {
	c, _ := cachetest.New(t, cache.Config{}, stored()...)
	ctx := t.Context()
	for what, do := range map[string]func() error{
		"GetClaimedSandbox": func() error {
			_, err := c.GetClaimedSandbox(ctx, cache.GetClaimedSandboxOptions{SandboxID: "bound"})
			return err
		},
		"GetCheckpoint": func() error {
			_, err := c.GetCheckpoint(ctx, cache.GetCheckpointOptions{CheckpointID: "id-1"})
			return err
		},
		"PickSandboxPool": func() error {
			_, err := c.PickSandboxPool(ctx, cache.PickSandboxPoolOptions{Name: "p"})
			return err
		},
		"ListSandboxPools": func() error { _, err := c.ListSandboxPools(ctx, cache.ListSandboxPoolsOptions{}); return err },
		"ListSandboxes":    func() error { _, err := c.ListSandboxes(ctx, cache.ListSandboxesOptions{}); return err },
		"ListCheckpoints":  func() error { _, err := c.ListCheckpoints(ctx, cache.ListCheckpointsOptions{}); return err },
		"ListSandboxesInPool": func() error {
			_, err := c.ListSandboxesInPool(ctx, cache.ListSandboxesInPoolOptions{Pool: "p"})
			return err
		},
	} {
		if err := do(); !errors.Is(err, cache.ErrNamespaceNeeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A Cache of one namespace, or of a selector, shows nothing else.
func TestLimitedCache(t *testing.T) {
	labelled := pool("n", "labelled", 0)
	labelled.Labels["team"] = "a"
	objects := append(stored(), labelled)
	list := func(config cache.Config, ns string) (sandboxes, pools, checkpoints int) {
		c, _ := cachetest.New(t, config, objects...)
		ctx := t.Context()
		all, err := c.ListSandboxes(ctx, cache.ListSandboxesOptions{Namespace: ns})
		ps, err2 := c.ListSandboxPools(ctx, cache.ListSandboxPoolsOptions{Namespace: ns})
		cps, err3 := c.ListCheckpoints(ctx, cache.ListCheckpointsOptions{Namespace: ns})
		if err := errors.Join(err, err2, err3); err != nil {
			t.Error(err)
		}
		return len(all), len(ps), len(cps)
	}
	if s, p, cp := list(cache.Config{Namespace: "m"}, "m"); s != 2 || p != 1 || cp != 1 {
		t.Errorf("of its namespace: %d sandboxes, %d pools, %d checkpoints", s, p, cp)
	}
	if s, p, cp := list(cache.Config{Namespace: "m"}, "n"); s != 0 || p != 0 || cp != 0 {
		t.Errorf("of another namespace: %d sandboxes, %d pools, %d checkpoints", s, p, cp)
	}
	if s, p, cp := list(cache.Config{Selector: labels.SelectorFromSet(labels.Set{"team": "a"})}, "n"); s != 5 || p != 1 || cp != 0 {
		t.Errorf("by a selector: %d sandboxes, %d pools, %d checkpoints", s, p, cp)
	}
}

// The caller may change what a read returns: later reads do not see the change.
func TestReadsAreCopies(t *testing.T) {
	c, _ := cachetest.New(t, cache.Config{}, stored()...)
	get := func() *v1alpha1.Sandbox {
		s, err := c.GetClaimedSandbox(t.Context(), cache.GetClaimedSandboxOptions{Namespace: "n", SandboxID: "bound"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	list := func() *v1alpha1.SandboxPool {
		all, err := c.ListSandboxPools(t.Context(), cache.ListSandboxPoolsOptions{Namespace: "m"})
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0]
	}
	s, p := get(), list()
	s.Spec.Binding.ClaimID, s.Annotations["x"] = "changed", "y"
	p.Annotations["x"] = "y"
	if s, p := get(), list(); s.Spec.Binding.ClaimID != "c" || s.Annotations["x"] != "" || p.Annotations["x"] != "" {
		t.Errorf("%+v, %+v", s.Spec.Binding, p.Annotations)
	}
}

// A read never asks the API server.
func TestReadsAreOfInformers(t *testing.T) {
	mgr := cachetest.GetMockManager(t, cache.Config{Namespace: "m"}, stored()...)
	c, err := cache.NewCache(mgr)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	defer c.Stop(t.Context())
	// The API server has it, and this Cache is not informed of it.
	if _, err := c.GetClaimedSandbox(t.Context(), cache.GetClaimedSandboxOptions{Namespace: "n", SandboxID: "bound"}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	var s v1alpha1.Sandbox
	if err := c.GetAPIReader().Get(t.Context(), client.ObjectKey{Name: "bound"}, &s); err != nil {
		t.Error(err)
	}
}
