package restapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

const buildB = "bbbbbbbb-0000-0000-0000-000000000000"

// taggedServer has a template x of team a with two builds: buildA is newer and has default and
// v2, buildB has v1 and had default before.
func taggedServer(t *testing.T) (*Server, *fakeBuilds) {
	s, b := buildServer(t)
	at := func(n int64) time.Time { return time.Unix(n, 0).UTC() }
	b.build = Build{
		ID: buildA, TemplateID: templateA, Name: "x", State: "ready", CPUCount: 1, MemoryMB: 256, CreatedAt: at(30), UpdatedAt: at(40), FinishedAt: at(40),
		Assigned: []AssignedTag{{"default", at(40)}, {"v2", at(50)}},
	}
	b.older = []Build{{
		ID: buildB, TemplateID: templateA, Name: "x", State: "error", CreatedAt: at(10), UpdatedAt: at(20), FinishedAt: at(20),
		Assigned: []AssignedTag{{"default", at(20)}, {"v1", at(45)}},
	}}
	return s, b
}

// What SDKs, the command line and the dashboard read of a template that was built, and of one
// that was not.
func TestTemplateAnswers(t *testing.T) {
	s, b := taggedServer(t)
	group := func(tag string, builds ...string) string {
		for i, one := range builds {
			builds[i] = `"buildId":"` + one + `"`
		}
		return `"tag":"` + tag + `"` + strings.Join(append([]string{""}, builds...), " && ")
	}
	for i, c := range []struct {
		method, path, body, key string
		status                  int
		want                    string // as in TestContract
	}{
		{"GET", "/v2/templates", ``, keyA, 200, `"templateID":"base" && "templateID":"other"`},
		{"GET", "/v2/templates?teamID=b", ``, keyA, 403, `teamID`},
		{"GET", "/v2/templates?nextToken=x", ``, keyA, 400, `nextToken`},
		{"GET", "/templates/x", ``, keyA, 200, `"templateID":"` + templateA + `" && "names":["x"] && "buildCount":2 && "cpuCount":1 && "buildStatus":"ready" && "createdAt":"1970-01-01T00:00:10Z" && "finishedAt":"1970-01-01T00:00:40Z" && "status":"error"`},
		{"GET", "/templates/a%2Fx", ``, keyA, 200, `"templateID":"` + templateA + `"`},
		{"GET", "/templates/x?limit=1", ``, keyA, 200, `"` + buildA + `" && !` + buildB},
		{"GET", "/templates/base", ``, keyA, 200, `"templateID":"base" && "builds":[] && "buildStatus":"ready"`},
		{"GET", "/templates/nosuch", ``, keyA, 404, `nosuch`},
		{"GET", "/templates/x", ``, keyB, 404, `x`},
		{"GET", "/templates/b%2Fx", ``, keyA, 404, `x`},
		{"GET", "/templates/.%2F.", ``, keyA, 404, ``},
		{"PATCH", "/templates/x", `{"public":false}`, keyA, 200, ``},
		{"PATCH", "/v2/templates/x", `{}`, keyA, 200, `"names":["x"]`},
		{"PATCH", "/v2/templates/base", `{"public":false}`, keyA, 200, `"names":["base","default"]`},
		{"PATCH", "/v2/templates/x", `{"public":true}`, keyA, 400, `public`},
		{"PATCH", "/v2/templates/x", `{"public":true}`, keyB, 404, `x`},

		{"POST", "/templates/tags", `{"target":"` + templateA + `:V1","tags":["V3","v3","v4"]}`, keyA, 201, `"buildID":"` + buildA + `" && "tags":["v3","v4"]`},
		{"POST", "/templates/tags", `{"target":"` + templateA + `","tags":["v3"]}`, keyA, 201, ``},
		{"POST", "/templates/tags", `{"target":"` + templateA + `","tags":["no tag"]}`, keyA, 400, `tags`},
		{"POST", "/templates/tags", `{"target":"` + templateA + `","tags":[]}`, keyA, 400, `tags`},
		{"POST", "/templates/tags", `{"target":"` + templateA + `","tags":["v3"]}`, keyB, 404, ``},
		{"POST", "/templates/tags", `{"target":"b/` + templateA + `","tags":["v3"]}`, keyA, 404, ``},
		{"POST", "/templates/tags", `{"target":"base","tags":["v3"]}`, keyA, 400, `tags`},
		{"DELETE", "/templates/tags", `{"name":"` + templateA + `","tags":["V3"]}`, keyA, 204, ``},
		{"DELETE", "/templates/tags", `{"name":"` + templateA + `","tags":["v3","default"]}`, keyA, 400, `default`},
		{"DELETE", "/templates/tags", `{"name":"` + templateA + `","tags":["v3"]}`, keyB, 404, ``},

		{"GET", "/templates/x/tags", ``, keyA, 200, `"tag":"v2" && "tag":"v1" && "tag":"default"`},
		{"GET", "/templates/x/tags", ``, keyB, 404, `x`},
		{"GET", "/templates/base/tags", ``, keyA, 200, `[]`},
		{"GET", "/templates/nosuch/tags", ``, keyA, 404, `nosuch`},
		{"GET", "/templates/x/tags/count", ``, keyA, 200, `"total":3`},
		{"GET", "/templates/x/tags/exists?tag=V1", ``, keyA, 200, `"exists":true && "normalizedTag":"v1"`},
		{"GET", "/templates/x/tags/exists?tag=v9", ``, keyA, 200, `"exists":false`},
		{"GET", "/templates/x/tags/exists", ``, keyA, 400, `tag`},
		{"GET", "/templates/x/tags/exists?tag=v1", ``, keyB, 404, ``},
		{"GET", "/templates/x/tags/groups", ``, keyA, 200, group("v2", buildA) + " && " + group("v1", buildB) + ` && "nextCursor":null`},
		{"GET", "/templates/x/tags/groups?tagsLimit=2", ``, keyA, 200, `"nextCursor":"v1" && !"default"`},
		{"GET", "/templates/x/tags/groups?tagsLimit=2&tagsCursor=v1", ``, keyA, 200, group("default", buildA, buildB) + ` && !"v2"`},
		{"GET", "/templates/x/tags/groups?search=DEF&assignmentLimit=1", ``, keyA, 200, group("default", buildA) + ` && "hasMore":true && !` + buildB},
		{"GET", "/templates/x/tags/groups?sort=name_desc&tagsLimit=1", ``, keyA, 200, `"nextCursor":"v2"`},
		{"GET", "/templates/x/tags/groups?sort=latest_asc&tagsLimit=1", ``, keyA, 200, `"nextCursor":"default"`},
		{"GET", "/templates/x/tags/default/assignments", ``, keyA, 200, `"buildFinishedAt":"1970-01-01T00:00:40Z" && "nextCursor":null && ` + buildB},
		{"GET", "/templates/x/tags/v9/assignments", ``, keyA, 200, `"data":[]`},
		{"GET", "/templates/x/tags/default/assignments", ``, keyB, 404, ``},
	} {
		w := ask(t, s, c.method, c.path, c.key, c.body)
		if w.Code != c.status {
			t.Errorf("%d: %s %s %s: %d %s, want %d", i, c.method, c.path, c.body, w.Code, w.Body, c.status)
		}
		for part := range strings.SplitSeq(c.want, " && ") {
			if unwanted, not := strings.CutPrefix(part, "!"); strings.Contains(w.Body.String(), strings.TrimPrefix(part, "!")) == not {
				t.Errorf("%d: %s %s: %s, want %s (%s)", i, c.method, c.path, w.Body, part, unwanted)
			}
		}
	}
	if want := templateA + " v1 v3,v4"; b.tagged[0] != want || b.tagged[1] != templateA+" default v3" || !slices.Contains(b.tagged, templateA+" v3") {
		t.Errorf("tagged %q, want %q first", b.tagged, want)
	}
}

// Pages of templates and of builds have all, each once.
func TestTemplatePages(t *testing.T) {
	s, _ := taggedServer(t)
	var templates, builds []string
	for next := "?limit=1"; next != ""; {
		w := ask(t, s, "GET", "/v2/templates"+next, keyA, "")
		for _, one := range read[[]api.Template](t, w) {
			templates = append(templates, one.TemplateID)
		}
		if next = w.Header().Get("X-Next-Token"); next != "" {
			next = "?limit=1&nextToken=" + next
		}
	}
	for next := "?limit=1"; next != ""; {
		w := ask(t, s, "GET", "/templates/x"+next, keyA, "")
		for _, one := range read[api.TemplateWithBuilds](t, w).Builds {
			builds = append(builds, one.BuildID)
		}
		if next = w.Header().Get("X-Next-Token"); next != "" {
			next = "?limit=1&nextToken=" + next
		}
	}
	if !slices.Equal(templates, []string{"base", "other"}) || !slices.Equal(builds, []string{buildA, buildB}) {
		t.Errorf("the pages have %q and %q", templates, builds)
	}
}

// The log is read from both ends.
func TestBuildLogs(t *testing.T) {
	s, b := buildServer(t)
	for i := range 250 {
		b.build.Log = append(b.build.Log, BuildLogEntry{At: time.Unix(int64(i), 0), Level: []string{"info", "debug"}[i%2], Step: "1", Text: fmt.Sprint(i)})
	}
	logs := "/templates/" + templateA + "/builds/" + buildA + "/logs"
	for query, want := range map[string]struct {
		entries     int
		first, last string
	}{
		"": {100, "0", "99"}, "?cursor=200000": {50, "200", "249"}, "?direction=backward&limit=2": {2, "249", "248"},
		"?direction=backward&cursor=10000&level=info&source=persistent": {6, "10", "0"}, "?limit=0": {},
	} {
		got := read[api.TemplateBuildLogs](t, ask(t, s, "GET", logs+query, keyA, "")).Logs
		if len(got) != want.entries || len(got) > 0 && (got[0].Message != want.first || got[len(got)-1].Message != want.last) {
			t.Errorf("%q: %d entries: %v", query, len(got), got)
		}
	}
	if w := ask(t, s, "GET", logs, keyB, ""); w.Code != 404 {
		t.Errorf("by another team: %d", w.Code)
	}
}
