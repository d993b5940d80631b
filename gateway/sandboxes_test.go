package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/restapi/backend"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

func (w *world) new(id string) restapi.NewSandbox {
	return restapi.NewSandbox{
		ID: id, Namespace: w.ns, Team: "team", KeyID: "key", Pool: "base", EndAt: time.Now().Add(time.Hour), Secure: true,
		Metadata: map[string]string{"a": "b"}, Env: map[string]string{"KEY": "value"},
	}
}

// create makes a sandbox, with time enough.
func (g *gateway) create(t *testing.T, n restapi.NewSandbox) (restapi.Sandbox, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return g.api.sandboxes.Create(ctx, n)
}

// wantError checks an error; a nil want is success.
func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// A sandbox from its create to its kill, seen by its own namespace alone.
func TestSandboxLife(t *testing.T) {
	w := newWorld(t)
	d := w.ready()
	g, other := w.gateway(), kubetest.Namespace(t)
	x, ctx := g.api.sandboxes, t.Context()
	n := w.new(newID())
	n.Private = true
	s, err := g.create(t, n)
	if err != nil {
		t.Fatal(err)
	}
	calls := d.calls()
	made := w.sandbox(n.ID)
	if len(calls) != 1 || calls[0].Token != w.tokens.Envd(n.ID, made.UID) || !maps.Equal(calls[0].Env, n.Env) || time.Since(calls[0].At) > time.Minute {
		t.Errorf("sandboxd was told %+v", calls)
	}
	if len(calls) > 0 && (calls[0].Sandbox != n.ID || calls[0].Template != "base") {
		t.Errorf("sandboxd was told that it is %q of %q", calls[0].Sandbox, calls[0].Template)
	}
	end := n.EndAt.UTC().Truncate(time.Second)
	spec := made.Spec
	if spec.FirstRequest || spec.Binding == nil || spec.Team != "team" || !spec.Timeouts.EndAt.Time.Equal(end) || spec.Network.Unsecured ||
		spec.Timeouts.Idle == nil || spec.Timeouts.Idle.Duration != 0 {
		t.Errorf("the sandbox is %+v", spec)
	}
	if owner := made.Annotations[v1alpha1.AnnotationOwner]; owner != "key" {
		t.Errorf("the sandbox's owner is %q", owner)
	}
	if r := g.cache.Get(n.ID); r == nil || r.Addr.String() != d.addr || !r.Private || r.TokenUID == nil || *r.TokenUID != made.UID {
		t.Errorf("the route is %+v", r)
	}
	check := func(what string, s restapi.Sandbox, err error, end time.Time) {
		t.Helper()
		if err != nil || s.ID != n.ID || s.UID != made.UID || s.Namespace != w.ns || s.Pool != "base" || !s.EndAt.Equal(end) || !s.Secure || !s.Private ||
			!maps.Equal(s.Metadata, n.Metadata) || s.StartedAt.IsZero() {
			t.Errorf("%s: %+v, %v", what, s, err)
		}
	}
	check("Create", s, nil, end)
	s, err = x.Get(ctx, w.ns, n.ID)
	check("Get", s, err, end)
	list := func(namespace string) []restapi.Sandbox {
		t.Helper()
		l, err := x.List(ctx, namespace, "")
		if err != nil {
			t.Error(err)
		}
		return l.Sandboxes
	}
	if all := list(w.ns); len(all) != 1 {
		t.Errorf("List: %+v", all)
	} else {
		check("List", all[0], nil, end)
	}
	m, err := x.Metrics(ctx, w.ns, n.ID, false)
	if err != nil || len(m) != 1 || m[0].CPUCount != 2 || m[0].CPUUsedPercent != 12.5 || m[0].MemUsed != 3 || m[0].DiskTotal != 9 || m[0].At.Unix() != 1_700_000_000 {
		t.Errorf("Metrics: %+v, %v", m, err)
	}
	m, err = x.Metrics(ctx, w.ns, n.ID, true)
	if err != nil || len(m) != 2 || m[0].At.Unix() != 1_699_999_995 || m[0].MemUsed != 2 || m[1].At.Unix() != 1_700_000_000 || m[1].DiskTotal != 9 {
		t.Errorf("Metrics with what was: %+v, %v", m, err)
	}
	if lines, err := x.Logs(ctx, w.ns, n.ID, 10); err != nil || len(lines) != 0 { // no node here has any
		t.Errorf("Logs: %v, %v", lines, err)
	}

	t.Run("another namespace", func(t *testing.T) {
		_, err := x.Get(ctx, other, n.ID)
		wantError(t, "Get", err, restapi.ErrNotFound)
		_, err = x.SetEnd(ctx, other, n.ID, time.Now(), true)
		wantError(t, "SetEnd", err, restapi.ErrNotFound)
		_, err = x.Metrics(ctx, other, n.ID, true)
		wantError(t, "Metrics", err, restapi.ErrNotFound)
		_, err = x.Logs(ctx, other, n.ID, 1)
		wantError(t, "Logs", err, restapi.ErrNotFound)
		wantError(t, "End", x.End(ctx, other, n.ID), restapi.ErrNotFound)
		if all := list(other); len(all) != 0 {
			t.Errorf("List: %+v", all)
		}
		if s := w.sandbox(n.ID); s.Spec.End != nil || !s.Spec.Timeouts.EndAt.Time.Equal(end) {
			t.Errorf("it was changed: %+v", s.Spec)
		}
	})
	for _, tc := range []struct {
		what    string
		by      time.Duration
		shorten bool
		want    time.Duration
	}{
		{"extended", time.Hour, false, time.Hour},
		{"not shortened", -time.Hour, false, time.Hour},
		{"the same", time.Hour, true, time.Hour},
		{"shortened", -30 * time.Minute, true, -30 * time.Minute},
		{"by part of a second", -30*time.Minute + 900*time.Millisecond, false, -30 * time.Minute},
	} {
		s, err := x.SetEnd(ctx, w.ns, n.ID, end.Add(tc.by), tc.shorten)
		check(tc.what, s, err, end.Add(tc.want))
		if at := w.sandbox(n.ID).Spec.Timeouts.EndAt; !at.Time.Equal(end.Add(tc.want)) {
			t.Errorf("%s: the end is %v, want %v", tc.what, at, end.Add(tc.want))
		}
	}
	for _, id := range []string{newID(), "", "a/b", "../x", "A"} {
		_, err := x.Get(ctx, w.ns, id)
		wantError(t, "Get "+id, err, restapi.ErrNotFound)
	}

	wantError(t, "End", x.End(ctx, w.ns, n.ID), nil)
	if r := g.cache.Get(n.ID); r != nil {
		t.Errorf("it is still routed to: %+v", r)
	}
	if a := g.own.Lookup(n.ID); a.State != routing.Ended {
		t.Errorf("right after its end it is %v", a.State)
	}
	behind := routing.Answer{State: routing.Running, ClaimID: spec.Binding.ClaimID, Route: &routecache.Route{}}
	if a := g.own.Correct(behind); a.State != routing.Ended || a.Route != nil {
		t.Errorf("an index that is behind is believed: %+v", a)
	}
	if e := w.sandbox(n.ID).Spec.End; e == nil || e.Reason != v1alpha1.EndReleased {
		t.Errorf("the end is %+v", e)
	}
	wantError(t, "End again", x.End(ctx, w.ns, n.ID), restapi.ErrNotFound)
	_, err = x.Get(ctx, w.ns, n.ID)
	wantError(t, "Get after the end", err, restapi.ErrNotFound)
	_, err = x.SetEnd(ctx, w.ns, n.ID, end.Add(2*time.Hour), true)
	wantError(t, "SetEnd after the end", err, restapi.ErrNotFound)
	if all := list(w.ns); len(all) != 0 {
		t.Errorf("List after the end: %+v", all)
	}
}

// Sandboxes of one second are told apart: each starts after what was there before its
// create and before what comes next, by what Create, Get and List say alike.
func TestCreationTimes(t *testing.T) {
	w := newWorld(t)
	w.ready()
	w.ready()
	g := w.gateway()
	var made []restapi.Sandbox
	for range 2 {
		before := time.Now().Truncate(time.Microsecond)
		s, err := g.create(t, w.new(newID()))
		if err != nil {
			t.Fatal(err)
		}
		if s.StartedAt.Before(before) || s.StartedAt.After(time.Now()) || s.StartedAt.Truncate(time.Microsecond) != s.StartedAt {
			t.Errorf("asked for at %v, started at %v", before, s.StartedAt)
		}
		read, err := g.api.sandboxes.Get(t.Context(), w.ns, s.ID)
		if err != nil || !read.StartedAt.Equal(s.StartedAt) {
			t.Errorf("Get says %v, %v, Create said %v", read.StartedAt, err, s.StartedAt)
		}
		made = append(made, s)
	}
	if !made[1].StartedAt.After(made[0].StartedAt) {
		t.Errorf("the second started at %v, the first at %v", made[1].StartedAt, made[0].StartedAt)
	}
	all, err := g.api.sandboxes.List(t.Context(), w.ns, "")
	if err != nil || len(all.Sandboxes) != 2 {
		t.Fatalf("List: %+v, %v", all, err)
	}
	for _, s := range all.Sandboxes {
		if want := made[slices.IndexFunc(made, func(m restapi.Sandbox) bool { return m.ID == s.ID })].StartedAt; !s.StartedAt.Equal(want) {
			t.Errorf("List says %v, Create said %v", s.StartedAt, want)
		}
	}
}

// A later page shows no sandbox that has ended since the first one, whichever gateway
// ended it, and the end that a sandbox has now.
func TestKeptListFollows(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	x := g.api.sandboxes
	ids := map[string]string{}
	for _, what := range []string{"stays", "is ended here", "is ended elsewhere", "is deleted", "is moved", "is over"} {
		s := &v1alpha1.Sandbox{}
		s.Name = newID()
		s.Spec.Namespace, s.Spec.Pool = w.ns, "base"
		s.Spec.Timeouts.EndAt = new(metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second)))
		s.Spec.Binding = &v1alpha1.Binding{ClaimID: "of-" + s.Name, PodName: "none", PodUID: "none"}
		if err := w.c.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		ids[what] = s.Name
	}
	known := func(what string, is func(index.Life) bool) {
		t.Helper()
		kubetest.Eventually(t, "the index to know what "+what, func() error {
			if l := g.index.Life(ids[what]); !is(l) {
				return fmt.Errorf("it says %+v", l)
			}
			return nil
		})
	}
	for what := range ids {
		known(what, func(l index.Life) bool { return l.Known && !l.EndAt.IsZero() })
	}
	first, err := x.List(t.Context(), w.ns, "")
	if err != nil || len(first.Sandboxes) != len(ids) || first.Version == "" || first.Kept {
		t.Fatalf("%+v, %v", first, err)
	}
	patch := func(what, patch string) {
		t.Helper()
		s := &v1alpha1.Sandbox{}
		s.Name = ids[what]
		if err := w.c.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.End(t.Context(), w.ns, ids["is ended here"]); err != nil {
		t.Fatal(err)
	}
	if second, err := x.List(t.Context(), w.ns, first.Version); err != nil || len(second.Sandboxes) != len(ids)-1 || !second.Kept {
		t.Errorf("right after an end here: %+v, %v", second, err)
	}
	gone := &v1alpha1.Sandbox{}
	gone.Name = ids["is deleted"]
	if err := w.c.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	moved := time.Now().Add(2 * time.Hour).Truncate(time.Second)
	patch("is ended elsewhere", `{"spec":{"end":{"reason":"Released","at":"2026-01-01T00:00:00Z"}}}`)
	patch("is moved", `{"spec":{"timeouts":{"endAt":"`+moved.UTC().Format(time.RFC3339)+`"}}}`)
	patch("is over", `{"spec":{"timeouts":{"endAt":"2026-01-01T00:00:00Z"}}}`)
	known("is ended elsewhere", func(l index.Life) bool { return l.Ended })
	known("is deleted", func(l index.Life) bool { return !l.Known })
	known("is moved", func(l index.Life) bool { return l.EndAt.Equal(moved) })
	known("is over", func(l index.Life) bool { return l.EndAt.Before(time.Now()) })
	third, err := x.List(t.Context(), w.ns, first.Version)
	if err != nil || len(third.Sandboxes) != 2 || !third.Kept {
		t.Fatalf("%+v, %v", third, err)
	}
	for _, s := range third.Sandboxes {
		if s.ID != ids["stays"] && (s.ID != ids["is moved"] || !s.EndAt.Equal(moved)) {
			t.Errorf("%+v is listed", s)
		}
	}
}

// When reads are used up for the moment no client is told that a sandbox is not there.
func TestBusy(t *testing.T) {
	w := newWorld(t)
	x := backend.New(backend.Options{Live: index.NewLive(index.LiveOptions{Reader: w.c, PerKey: 1})})
	_, err := x.Get(t.Context(), w.ns, newID())
	wantError(t, "the first Get", err, restapi.ErrNotFound)
	_, err = x.Get(t.Context(), w.ns, newID())
	wantError(t, "the second Get", err, restapi.ErrBusy)
	_, err = x.Get(t.Context(), "another", newID())
	wantError(t, "the first Get of another caller", err, restapi.ErrNotFound)
	for range 3 {
		wantError(t, "End", x.End(t.Context(), w.ns, newID()), restapi.ErrNotFound)
	}
}

// Many change the end at once: only to later, so the latest of them stays.
func TestExtendingAtOnce(t *testing.T) {
	w := newWorld(t)
	w.ready()
	g := w.gateway()
	n := w.new(newID())
	if _, err := g.create(t, n); err != nil {
		t.Fatal(err)
	}
	end := n.EndAt.UTC().Truncate(time.Second)
	errs := make(chan error, 4)
	for i := range 4 {
		go func() {
			_, err := g.api.sandboxes.SetEnd(t.Context(), w.ns, n.ID, end.Add(time.Duration(i)*time.Hour), false)
			errs <- err
		}()
	}
	for range 4 {
		wantError(t, "SetEnd", <-errs, nil)
	}
	if at := w.sandbox(n.ID).Spec.Timeouts.EndAt; !at.Time.Equal(end.Add(3 * time.Hour)) {
		t.Errorf("the end is %v, want %v", at, end.Add(3*time.Hour))
	}
}

// Without the secure flag sandboxd gets no token; a pool's own idle timeout holds.
func TestUnsecured(t *testing.T) {
	w := newWorld(t)
	w.pool("idles", v1alpha1.SandboxdPort, func(p *v1alpha1.SandboxPool) { p.Spec.IdleTimeout = duration(time.Minute) })
	d := w.sandboxd()
	w.pod("idles", d.addr, nil)
	g := w.gateway()
	n := w.new(newID())
	n.Pool, n.Secure = "idles", false
	s, err := g.create(t, n)
	if err != nil || s.Secure {
		t.Fatalf("%+v, %v", s, err)
	}
	if calls := d.calls(); len(calls) != 1 || calls[0].Token != "" {
		t.Errorf("sandboxd was told %+v", calls)
	}
	if spec := w.sandbox(n.ID).Spec; !spec.Network.Unsecured || spec.Timeouts.Idle != nil {
		t.Errorf("the sandbox is %+v", spec)
	}
}
