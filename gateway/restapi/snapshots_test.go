package restapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
	"github.com/sandlane/sandlane/routing"
)

// fakeSnapshots keeps them in memory.
type fakeSnapshots struct {
	all     []Snapshot
	creates error
}

func (f *fakeSnapshots) Create(_ context.Context, caller routing.KeyOwner, sandboxID string, names []string) (Snapshot, error) {
	if f.creates != nil {
		return Snapshot{}, f.creates
	}
	if sandboxID != idA || caller.Namespace != "a" {
		return Snapshot{}, ErrNotFound
	}
	s := Snapshot{ID: fmt.Sprintf("s%d", len(f.all)), Names: names, SandboxID: sandboxID, Pool: "base", At: time.Unix(int64(1000+len(f.all)), 0)}
	f.all = append(f.all, s)
	return s, nil
}

func (f *fakeSnapshots) Get(_ context.Context, namespace, id string) (Snapshot, error) {
	for _, s := range f.all {
		if s.ID == id && namespace == "a" {
			return s, nil
		}
	}
	return Snapshot{}, ErrNoSnapshot
}

func (f *fakeSnapshots) List(_ context.Context, namespace string) ([]Snapshot, error) {
	if namespace != "a" {
		return nil, nil
	}
	return append([]Snapshot(nil), f.all...), nil
}

func (f *fakeSnapshots) Delete(_ context.Context, namespace, id string) error {
	for i, s := range f.all {
		if s.ID == id && namespace == "a" {
			f.all = append(f.all[:i:i], f.all[i+1:]...)
			return nil
		}
	}
	return ErrNoSnapshot
}

func snapshotServer(t *testing.T) (*Server, *fake, *fakeSnapshots) {
	f, kept := newFake(), &fakeSnapshots{}
	return newServer(t, f, func(o *Options) { o.Snapshots = kept }), f, kept
}

// What SDKs go by: the status, and the same code in the body.
func TestSnapshotAnswers(t *testing.T) {
	s, f, _ := snapshotServer(t)
	for i, c := range []struct {
		method, path, body, key string
		status                  int
		text                    string
	}{
		{"POST", "/sandboxes/{id}/snapshots", ``, keyA, 201, `{"names":[],"snapshotID":"s0:default"}`},
		{"POST", "/sandboxes/{id}/snapshots", `{"name":null}`, keyA, 201, `s1`},
		{"POST", "/sandboxes/{id}/snapshots", `{"name":"Mine"}`, keyA, 201, `{"names":["mine:default"],"snapshotID":"mine:default"}`},
		{"POST", "/sandboxes/{id}/snapshots", `{"name":"a/mine:default"}`, keyA, 201, `{"names":["mine:default"],"snapshotID":"mine:default"}`},
		{"POST", "/sandboxes/{id}/snapshots", `{"name":"mine:v2"}`, keyA, 201, `{"names":["mine:v2"],"snapshotID":"mine:v2"}`},
		{"POST", "/sandboxes/{id}/snapshots", `{"memory":true}`, keyA, 400, `memory`},
		{"POST", "/sandboxes/{id}/snapshots", `{"name":"b/mine"}`, keyA, 400, `another team`},
		{"POST", "/sandboxes/{id}/snapshots", `{"name":"no name"}`, keyA, 400, `name`},
		{"POST", "/sandboxes/{id}/snapshots", `{"name":"../x"}`, keyA, 400, `name`},
		{"POST", "/sandboxes/{id}/snapshots", `{"name":"base"}`, keyA, 400, `no snapshot`},
		{"POST", "/sandboxes/{id}/snapshots", `{"name":"` + strings.Repeat("x", 129) + `"}`, keyA, 400, `128`},
		{"POST", "/sandboxes/nosuch/snapshots", `{}`, keyA, 404, `doesn't exist`},
		{"GET", "/snapshots", ``, keyA, 200, `[{"names":["mine:v2"],"snapshotID":"mine:v2"},{"names":["mine:default"],"snapshotID":"mine:default"},{"names":[],"snapshotID":"s2:default"}`},
		{"GET", "/snapshots?name=mine", ``, keyA, 200, `[{"names":["mine:default"],"snapshotID":"mine:default"}]`},
		{"GET", "/snapshots?name=mine:default", ``, keyA, 200, `[{"names":["mine:default"],"snapshotID":"mine:default"}]`},
		{"GET", "/snapshots?name=s2:default", ``, keyA, 200, `[{"names":[],"snapshotID":"s2:default"}]`},
		{"GET", "/snapshots?name=b/mine", ``, keyA, 200, `[]`},
		{"GET", "/snapshots?name=%20", ``, keyA, 400, `name`},
		{"GET", "/snapshots?sandboxID={id}-client&limit=1", ``, keyA, 200, `[{"names":["mine:v2"],"snapshotID":"mine:v2"}]`},
		{"GET", "/snapshots?sandboxID=other", ``, keyA, 200, `[]`},
		{"GET", "/snapshots?sandboxID=..", ``, keyA, 400, `sandboxID`},
		{"GET", "/snapshots?limit=0", ``, keyA, 400, `limit`},
		{"GET", "/snapshots?nextToken=x", ``, keyA, 400, `nextToken`},
		{"GET", "/snapshots", ``, keyB, 200, `[]`},
		{"POST", "/v2/sandboxes", `{"templateID":"s0:default"}`, keyA, 201, `"templateID":"s0"`},
		{"POST", "/v2/sandboxes", `{"templateID":"s0"}`, keyB, 404, `s0`},
		{"DELETE", "/templates/s0", ``, keyB, 404, `snapshot`},
		{"DELETE", "/templates/s0", ``, keyA, 204, ``},
		{"DELETE", "/templates/s0", ``, keyA, 404, `snapshot`},
		{"POST", "/v2/sandboxes", `{"templateID":"s0"}`, keyA, 404, `s0`},
		{"DELETE", "/templates/a%2Fmine:v2", ``, keyA, 204, ``},
		{"DELETE", "/templates/a%2Fmine:v2", ``, keyA, 404, ``},
		{"DELETE", "/templates/base", ``, keyA, 501, `SandboxPool`},
	} {
		fill := strings.NewReplacer("{id}", idA)
		w := ask(t, s, c.method, fill.Replace(c.path), c.key, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.text) {
			t.Errorf("%d: %s %s %s: %d %s, want %d with %s", i, c.method, c.path, c.body, w.Code, w.Body, c.status, c.text)
		}
		if c.status >= 400 && read[api.Error](t, w).Code != c.status {
			t.Errorf("%d: %s does not repeat the code", i, w.Body)
		}
	}
	if n := len(f.made); n != 1 || f.made[0].Snapshot != "s0" || f.made[0].Pool != "base" || f.made[0].SandboxEnv != "" {
		t.Errorf("made %+v", f.made)
	}
}

// By a name the newest one is meant.
func TestCreateBySnapshotName(t *testing.T) {
	s, f, kept := snapshotServer(t)
	for range 3 {
		ask(t, s, "POST", "/sandboxes/"+idA+"/snapshots", keyA, `{"name":"mine"}`)
	}
	if w := ask(t, s, "POST", "/sandboxes", keyA, `{"templateID":"Mine"}`); w.Code != 201 || f.made[0].Snapshot != "s2" {
		t.Errorf("%d %s, made %+v", w.Code, w.Body, f.made)
	}
	kept.all[2].Pool = "gone"
	if w := ask(t, s, "POST", "/sandboxes", keyA, `{"templateID":"mine"}`); w.Code != 400 || !strings.Contains(w.Body.String(), "gone") {
		t.Errorf("of a pool that is gone: %d %s", w.Code, w.Body)
	}
}

// A name is the newest snapshot's, also of two in one second, and goes with it: a delete by
// name, repeated, does not reach what had the name before.
func TestNameMovesToTheNewest(t *testing.T) {
	s, f, kept := snapshotServer(t)
	at := time.Unix(1000, 0)
	kept.all = []Snapshot{
		{ID: "s2", Names: []string{"mine"}, Pool: "base", At: at}, {ID: "s1", Names: []string{"mine", "other:v1"}, Pool: "base", At: at},
		{ID: "s3", Names: []string{"mine"}, Pool: "base", At: at.Add(-time.Second)}, {ID: "s4", Pool: "base", At: at},
	}
	views := read[[]api.Snapshot](t, ask(t, s, "GET", "/snapshots", keyA, ""))
	if got := fmt.Sprint(views); got != "[{[] s4:default} {[mine:default] mine:default} {[other:v1] other:v1} {[] s3:default}]" {
		t.Errorf("listed as %s", got)
	}
	if w := ask(t, s, "POST", "/sandboxes", keyA, `{"templateID":"mine:default"}`); w.Code != 201 || f.made[0].Snapshot != "s2" {
		t.Errorf("%d %s, made %+v", w.Code, w.Body, f.made)
	}
	for i, want := range []int{204, 404} {
		if w := ask(t, s, "DELETE", "/templates/mine:default", keyA, ""); w.Code != want {
			t.Errorf("delete %d: %d %s", i, w.Code, w.Body)
		}
	}
	if len(kept.all) != 1 || kept.all[0].ID != "s4" {
		t.Errorf("what is left is %+v", kept.all)
	}
}

// A sandbox that began with a snapshot is of the snapshot's template, in all answers, and
// lists find it by that.
func TestTemplateOfASnapshotsSandbox(t *testing.T) {
	s, f, _ := snapshotServer(t)
	ask(t, s, "POST", "/sandboxes/"+idA+"/snapshots", keyA, `{}`)
	ask(t, s, "POST", "/v2/sandboxes", keyA, `{"templateID":"s0:default"}`)
	id := f.made[0].ID
	if got := read[api.SandboxDetail](t, ask(t, s, "GET", "/sandboxes/"+id, keyA, "")); got.TemplateID != "s0" {
		t.Errorf("get: template %q", got.TemplateID)
	}
	for template, want := range map[string]string{"s0": id, "s1": "", "base": ""} {
		got := ids(read[[]api.ListedSandbox](t, ask(t, s, "GET", "/v2/sandboxes?template="+template, keyA, "")))
		if found := slices.Contains(got, id); want != "" && (!found || len(got) != 1) || template == "s1" && len(got) > 0 {
			t.Errorf("sandboxes of %s: %v", template, got)
		}
	}
}

// A snapshot is restored in its own pool, also where an env has that pool's name, as one
// that was made for the pool has, or where another template has it as an alias.
func TestCreateBySnapshotOfAnEnvsPool(t *testing.T) {
	f := newFake()
	kept := &fakeSnapshots{all: []Snapshot{{ID: "s0", Pool: "base"}}}
	s := newServer(t, f, func(o *Options) {
		o.Snapshots = kept
		o.Templates = fakeTemplates{
			{ID: "python", Aliases: []string{"base"}, Pool: "python", MaxLifetime: time.Hour},
			{ID: "base", SandboxEnv: "base", Adopted: "base", MaxLifetime: time.Hour},
		}
	})
	w := ask(t, s, "POST", "/v2/sandboxes", keyA, `{"templateID":"s0"}`)
	if w.Code != 201 || len(f.made) != 1 || f.made[0].Snapshot != "s0" || f.made[0].Pool != "base" || f.made[0].SandboxEnv != "" {
		t.Errorf("%d %s, made %+v", w.Code, w.Body, f.made)
	}
}

// Pages have every snapshot once.
func TestSnapshotPages(t *testing.T) {
	s, _, kept := snapshotServer(t)
	for i := range 7 {
		kept.all = append(kept.all, Snapshot{ID: fmt.Sprintf("s%d", i), At: time.Unix(int64(i/3), 0)})
	}
	var got []string
	for token := ""; ; {
		w := ask(t, s, "GET", "/snapshots?limit=2&nextToken="+token, keyA, "")
		for _, one := range read[[]api.Snapshot](t, w) {
			got = append(got, one.SnapshotID)
		}
		if token = w.Header().Get("X-Next-Token"); token == "" {
			break
		}
	}
	if fmt.Sprint(got) != "[s6:default s5:default s4:default s3:default s2:default s1:default s0:default]" {
		t.Errorf("pages have %v", got)
	}
}

func TestSnapshotErrors(t *testing.T) {
	s, _, kept := snapshotServer(t)
	for err, want := range map[error]int{
		ErrSnapshotTooLarge: 507, ErrSnapshotStoreFull: 507, ErrSnapshotLimit: 429, ErrSnapshotting: 409, ErrNotRunning: 409, ErrBusy: 503,
		Invalidf("no"): 400, errors.New("secret"): 500, context.DeadlineExceeded: 504,
	} {
		kept.creates = fmt.Errorf("snapshot: %w", err)
		w := ask(t, s, "POST", "/sandboxes/"+idA+"/snapshots", keyA, `{}`)
		if w.Code != want || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%v: %d %s, want %d", err, w.Code, w.Body, want)
		}
	}
}

// Without a store all says which flag is missing.
func TestNoSnapshotStore(t *testing.T) {
	s := newServer(t, newFake(), nil)
	for request, status := range map[string]int{
		"POST /sandboxes/" + idA + "/snapshots": 501, "POST /sandboxes/nosuch/snapshots": 404,
		"GET /snapshots": 501, "DELETE /templates/s0": 501,
	} {
		method, path, _ := strings.Cut(request, " ")
		w := ask(t, s, method, path, keyA, "")
		if w.Code != status || status == 501 && !strings.Contains(w.Body.String(), "--checkpoint-dir") {
			t.Errorf("%s: %d %s, want %d", request, w.Code, w.Body, status)
		}
	}
}
