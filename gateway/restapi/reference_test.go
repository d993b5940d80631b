package restapi

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

// Templates are named as E2B parses names: case, blanks, the default tag and the
// caller's own team do not count.
func TestTemplateReferences(t *testing.T) {
	const none = "doesn't exist or you don't have access to it"
	for _, c := range []struct {
		text, pool string // the pool that is asked for a sandbox
		code       int
		message    string
	}{
		{text: "base", pool: "base"}, {text: "Base", pool: "base"}, {text: "  BASE ", pool: "base"},
		{text: "base:default", pool: "base"}, {text: " base : Default ", pool: "base"}, {text: "default", pool: "base"},
		{text: "a/base", pool: "base"}, {text: " A / Base:default", pool: "base"},
		{text: "other:v2", pool: "base"}, {text: "a/Other:V2", pool: "base"}, {text: "other", pool: "other-pool"},
		{text: "base:v1", code: 404, message: "tag 'v1' does not exist for template 'base'"},
		{text: "b/base", code: 404, message: none}, {text: "nosuch", code: 404, message: none}, {text: "nosuch:v1", code: 404, message: none},
		{text: "base:", code: 400, message: "Invalid template reference: invalid tag: "},
		{text: "base:a b", code: 400, message: "Invalid template reference: invalid tag: a b"},
		{text: "/base", code: 400, message: "Invalid template reference: invalid namespace: "},
		{text: "a!/base", code: 400, message: "Invalid template reference: invalid namespace: a!"},
		{text: "a/b/base", code: 400, message: "Invalid template reference: invalid template ID: b/base"},
		{text: "my template!", code: 400, message: "Invalid template reference: invalid template ID: my template!"},
		{text: "  ", code: 400, message: "Invalid template reference: invalid template ID:   "},
	} {
		f := newFake()
		s := newServer(t, f, func(o *Options) {
			o.Templates = fakeTemplates{
				{ID: "base", Aliases: []string{"default", "other:v2"}, Pool: "base", MaxLifetime: time.Hour},
				{ID: "other", Pool: "other-pool", MaxLifetime: time.Hour},
			}
		})
		w := ask(t, s, "POST", "/v2/sandboxes", keyA, string(encode(map[string]string{"templateID": c.text})))
		if c.pool != "" {
			if w.Code != 201 || len(f.made) != 1 || f.made[0].Pool != c.pool {
				t.Errorf("%q: %d %s, made %+v", c.text, w.Code, w.Body, f.made)
			}
		} else if w.Code != c.code || !strings.Contains(read[api.Error](t, w).Message, c.message) || len(f.made) > 0 {
			t.Errorf("%q: %d %s, want %d %s", c.text, w.Code, w.Body, c.code, c.message)
		}
		w = ask(t, s, "GET", "/templates/aliases/"+url.PathEscape(c.text), keyA, "")
		if c.pool != "" && w.Code != 200 || c.pool == "" && w.Code != c.code {
			t.Errorf("the alias %q: %d %s", c.text, w.Code, w.Body)
		}
	}
}

// Lists are filtered by a template as it may be named; tags are refused there.
func TestTemplateFilter(t *testing.T) {
	f := newFake()
	clear(f.sandboxes)
	for id, pool := range map[string]string{"x": "base", "y": "other-pool", "z": "gone"} {
		f.sandboxes[id] = Sandbox{ID: id, Namespace: "a", Pool: pool}
	}
	s := newServer(t, f, nil)
	const spaced = " Default "
	for template, want := range map[string]string{
		"base": "x", spaced: "x", "A/base": "x", "other": "y", "gone": "z", "nosuch": "", "b/base": "", "": "xyz",
	} {
		w := ask(t, s, "GET", "/v2/sandboxes?template="+url.QueryEscape(template), keyA, "")
		if got := strings.Join(ids(read[[]api.ListedSandbox](t, w)), ""); got != want {
			t.Errorf("%q: %q, want %q", template, got, want)
		}
		if total := w.Header().Get("X-Total-Running"); total != string('0'+rune(len(want))) {
			t.Errorf("%q: total %s", template, total)
		}
	}
	for template, want := range map[string]string{
		"base:v1": "Invalid template: tags are not supported here because sandboxes are not tag-scoped",
		"a b":     "Invalid template: invalid template ID: a b",
	} {
		w := ask(t, s, "GET", "/v2/sandboxes?template="+url.QueryEscape(template), keyA, "")
		if w.Code != 400 || read[api.Error](t, w).Message != want {
			t.Errorf("%q: %d %s", template, w.Code, w.Body)
		}
	}
}
