package restapi

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
	"github.com/sandlane/sandlane/gateway/restapi/requestbody"
	"github.com/sandlane/sandlane/routing"
)

const (
	templateA = "templateofteama00000" // of team a, with the build buildA
	buildA    = "aaaaaaaa-0000-0000-0000-000000000000"
)

var hashA = strings.Repeat("a", 64)

// fakeBuilds has one build, of team a.
type fakeBuilds struct {
	requested []BuildRequest
	started   []Recipe
	uploaded  string
	tagged    []string
	build     Build
	older     []Build
	err       error
}

func (f *fakeBuilds) of(caller routing.KeyOwner, template, id string) error {
	if caller.Namespace != "a" || template != templateA || id != "" && id != buildA {
		return ErrNoBuild
	}
	return f.err
}

func (f *fakeBuilds) Request(_ context.Context, caller routing.KeyOwner, r BuildRequest) (Build, error) {
	f.requested = append(f.requested, r)
	return Build{ID: "new", TemplateID: "id-in-" + caller.Namespace, Name: r.Name, Tags: r.Tags, State: "waiting"}, f.err
}

func (f *fakeBuilds) Files(_ context.Context, caller routing.KeyOwner, template, hash string) (bool, string, error) {
	return false, "allowed." + hash, f.of(caller, template, "")
}

func (f *fakeBuilds) Upload(_ context.Context, upload, template, hash string, size int64, content io.Reader) error {
	if upload != "allowed."+hash || template != templateA {
		return ErrUploadRefused
	}
	if size > 10_000_000 {
		return ErrUploadTooLarge
	}
	text, err := io.ReadAll(content)
	f.uploaded = string(text)
	return err
}

func (f *fakeBuilds) Start(_ context.Context, caller routing.KeyOwner, template, id string, r Recipe) error {
	if err := f.of(caller, template, id); err != nil {
		return err
	}
	f.started = append(f.started, r)
	return nil
}

func (f *fakeBuilds) Get(_ context.Context, caller routing.KeyOwner, template, id string) (Build, error) {
	return f.build, f.of(caller, template, id)
}

func (f *fakeBuilds) List(_ context.Context, caller routing.KeyOwner, name string) ([]Build, error) {
	if name == f.build.Name {
		name = templateA
	}
	return append([]Build{f.build}, f.older...), f.of(caller, name, "")
}

func (f *fakeBuilds) Assign(_ context.Context, caller routing.KeyOwner, name, from string, tags []string) (string, error) {
	f.tagged = append(f.tagged, name+" "+from+" "+strings.Join(tags, ","))
	return buildA, f.of(caller, name, "")
}

func (f *fakeBuilds) Remove(_ context.Context, caller routing.KeyOwner, name string, tags []string) error {
	f.tagged = append(f.tagged, name+" "+strings.Join(tags, ","))
	return f.of(caller, name, "")
}

func (f *fakeBuilds) Delete(_ context.Context, caller routing.KeyOwner, name string) (bool, error) {
	return f.of(caller, name, "") == nil, nil
}

func buildServer(t *testing.T) (*Server, *fakeBuilds) {
	b := &fakeBuilds{build: Build{ID: buildA, TemplateID: templateA, Name: "x", State: "building"}}
	return newServer(t, newFake(), func(o *Options) { o.Builds = b }), b
}

// What SDKs go by: status and text.
func TestBuildAnswers(t *testing.T) {
	s, b := buildServer(t)
	start := "/v2/templates/" + templateA + "/builds/" + buildA
	for i, c := range []struct {
		method, path, body, key string
		err                     error
		status                  int
		text                    string
	}{
		{"POST", "/v3/templates", `{"name":"Mine"}`, keyA, nil, 202, `"tags":["default"]`},
		{"POST", "/v3/templates", `{"alias":"a/mine:v1","tags":["v2","v1"]}`, keyA, nil, 202, `"tags":["v1","v2"]`},
		{"POST", "/v3/templates", `{"name":"mine:default"}`, keyA, nil, 202, `"tags":["default"]`},
		{"POST", "/v3/templates", `{"name":"b/mine"}`, keyA, nil, 400, `another team`},
		{"POST", "/v3/templates", `{"name":"has.dot"}`, keyA, nil, 400, `name`},
		{"POST", "/v3/templates", `{"name":"x","tags":["no tag"]}`, keyA, nil, 400, `tags`},
		{"POST", "/v3/templates", `{}`, keyA, nil, 400, `name`},
		{"POST", "/v3/templates", `{"name":"x","cpuCount":0}`, keyA, nil, 400, `cpuCount`},
		{"POST", "/v3/templates", `{"name":"x"}`, keyA, ErrBuildLimit, 429, `limit of builds`},
		{"POST", "/v3/templates", `{"name":"x"}`, keyA, ErrBuildBytes, 429, `as many bytes as they may`},
		{"POST", start, `{"fromImage":"debian","steps":[{"type":"run","args":["x"],"force":false}]}`, keyA, nil, 202, ``},
		{"POST", start, `{"fromImage":"debian"}`, keyB, nil, 404, `doesn't exist`},
		{"POST", start, `{"fromImage":"debian"}`, keyA, ErrBuildStarted, 409, `started`},
		{"POST", start, `{"fromImage":"debian"}`, keyA, &RefusedBuildError{"fromImage: no"}, 400, `fromImage: no`},
		{"POST", start, `{}`, keyA, nil, 400, `fromImage`},
		{"POST", start, `{"fromTemplate":"a/X:v1","steps":[]}`, keyA, nil, 202, ``},
		{"POST", start, `{"fromTemplate":"b/x"}`, keyA, nil, 400, `fromTemplate`},
		{"POST", start, `{"fromTemplate":"no name"}`, keyA, nil, 400, `fromTemplate`},
		{"POST", start, `{"fromTemplate":"x","fromImage":"debian"}`, keyA, nil, 400, `not both`},
		{"POST", start, `{"fromImage":"x","fromImageRegistry":{"type":"aws"}}`, keyA, nil, 400, `fromImageRegistry.type`},
		{"POST", start, `{"fromImage":"x","steps":[{"type":"ADD","args":["x"]}]}`, keyA, nil, 400, `steps[0]`},
		{"POST", start, `{"fromImage":"x","steps":[{"type":"COPY","args":["x","y"]}]}`, keyA, nil, 400, `filesHash`},
		{"POST", start, `{"fromImage":"x","steps":[{"type":"RUN","args":["x"],"filesHash":"` + hashA + `"}]}`, keyA, nil, 400, `filesHash`},
		{"POST", start, `{"fromImage":"x","steps":[{"type":"ENV","args":["x"]}]}`, keyA, nil, 400, `arguments`},
		{"POST", start, `{"fromImage":"x","steps":[{"type":"RUN","args":["a\u0000b"]}]}`, keyA, nil, 400, `zero byte`},
		{"GET", "/templates/" + templateA + "/files/" + hashA, ``, keyA, nil, 201, `"present":false`},
		{"GET", "/templates/" + templateA + "/files/" + hashA, ``, keyB, nil, 404, `doesn't exist`},
		{"GET", "/templates/" + templateA + "/files/..", ``, keyA, nil, 400, `hash`},
		{"DELETE", "/templates/" + templateA, ``, keyA, nil, 204, ``},
		{"DELETE", "/templates/base", ``, keyA, nil, 501, `SandboxPool`},
		{"DELETE", "/templates/a%2F" + templateA, ``, keyA, nil, 204, ``},
		{"DELETE", "/templates/b%2F" + templateA, ``, keyA, nil, 501, `checkpoint-dir`},
	} {
		b.err = c.err
		w := ask(t, s, c.method, c.path, c.key, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.text) {
			t.Errorf("%d: %s %s %s: %d %s, want %d %s", i, c.method, c.path, c.body, w.Code, w.Body, c.status, c.text)
		}
	}
	if r := b.requested[0]; r.Name != "mine" || r.CPUCount != defaultCPUs || r.MemoryMB != defaultMemoryMB {
		t.Errorf("requested %+v", r)
	}
	if r := b.started[0]; r.Image != "debian" || r.Template != "" || r.Steps[0].Type != "RUN" {
		t.Errorf("started %+v", r)
	}
	if r := b.started[1]; r.Image != "" || r.Template != "x" || r.Tag != "v1" {
		t.Errorf("started %+v", r)
	}
}

// The URL of an upload is at the address that the client knows, and needs no key; any other is
// refused.
func TestUpload(t *testing.T) {
	s, b := buildServer(t)
	w := ask(t, s, "GET", "/templates/"+templateA+"/files/"+hashA, keyA, "", "X-Forwarded-Proto", "https")
	url := *read[api.TemplateFiles](t, w).Url
	if !strings.HasPrefix(url, "https://example.com/templates/"+templateA+"/files/"+hashA+"?upload=") {
		t.Fatalf("the URL is %s", url)
	}
	path := strings.TrimPrefix(url, "https://example.com")
	content := strings.Repeat("x", 2*requestbody.Max) + "\xff" // more than other bodies, and no text
	if w := ask(t, s, "PUT", path, "", content); w.Code != 200 || b.uploaded != content {
		t.Errorf("%d %s, %d bytes were uploaded", w.Code, w.Body, len(b.uploaded))
	}
	for what, path := range map[string]string{
		"another hash": strings.Replace(path, "files/aa", "files/bb", 1), "another template": strings.Replace(path, "templateof", "templateoo", 1), "another token": path + "x",
	} {
		if w := ask(t, s, "PUT", path, "", "x"); w.Code != 403 {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
	if w := ask(t, s, "PUT", strings.Split(path, "?")[0], "", "x"); w.Code != 400 {
		t.Errorf("without a token: %d %s", w.Code, w.Body)
	}
	r := httptest.NewRequest("PUT", path, io.MultiReader(strings.NewReader("x"))) // of unknown length
	if w := askWith(t, s, r, ""); w.Code != 411 {
		t.Errorf("without a length: %d %s", w.Code, w.Body)
	}
	r = httptest.NewRequest("PUT", path, strings.NewReader("x"))
	if r.ContentLength = 11_000_000; askWith(t, s, r, "").Code != 413 {
		t.Error("an upload that is too large")
	}
}

// SDKs read a log by pages until there is none, and find the failed step.
func TestBuildStatus(t *testing.T) {
	s, b := buildServer(t)
	for i := range 250 {
		b.build.Log = append(b.build.Log, BuildLogEntry{At: time.Unix(int64(i), 0), Level: []string{"info", "debug"}[i%2], Step: "1", Text: fmt.Sprint(i)})
	}
	status := "/templates/" + templateA + "/builds/" + buildA + "/status"
	for query, want := range map[string][2]int{"": {0, 100}, "?logsOffset=200": {200, 50}, "?logsOffset=250": {0, 0}, "?logsOffset=999": {0, 0}, "?limit=3": {0, 3}, "?level=info&logsOffset=124": {248, 1}} {
		info := read[api.TemplateBuildInfo](t, ask(t, s, "GET", status+query, keyA, ""))
		if len(info.LogEntries) != want[1] || want[1] > 0 && info.LogEntries[0].Message != fmt.Sprint(want[0]) || info.Status != "building" || info.Reason != nil {
			t.Errorf("%q: %d entries, status %s, reason %v", query, len(info.LogEntries), info.Status, info.Reason)
		}
	}
	b.build.State, b.build.Reason, b.build.Step = "error", "exit status 7", "1"
	info := read[api.TemplateBuildInfo](t, ask(t, s, "GET", status, keyA, ""))
	if info.Status != "error" || info.Reason == nil || info.Reason.Message != "exit status 7" || *info.Reason.Step != "1" || len(*info.Reason.LogEntries) != reasonEntries {
		t.Errorf("%+v", info.Reason)
	}
	if w := ask(t, s, "GET", status, keyB, ""); w.Code != 404 {
		t.Errorf("by another team: %d", w.Code)
	}
}
