package restapi

import (
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

// A sandbox of an env shows the env as its template, whichever member its pod is of, and
// a list of the env's has it. So does one that was made from a pool before it was adopted.
func TestTemplateThatIsAnEnv(t *testing.T) {
	f := newFake()
	clear(f.sandboxes)
	s := newServer(t, f, func(o *Options) {
		o.Templates = fakeTemplates{
			{ID: "python", SandboxEnv: "python", MaxLifetime: time.Hour},
			{ID: "spare", Pool: "spare", MaxLifetime: time.Hour},
			{ID: "old", SandboxEnv: "old", Adopted: "old", Aliases: []string{"ancient"}, MaxLifetime: time.Hour},
		}
	})
	w := ask(t, s, "POST", "/sandboxes", keyA, `{"templateID":"python"}`)
	if w.Code != 201 || len(f.made) != 1 || f.made[0].SandboxEnv != "python" || f.made[0].Pool != "" {
		t.Fatalf("create by env: %d %s, %+v", w.Code, w.Body, f.made)
	}
	clear(f.sandboxes)
	for id, from := range map[string]origin{"v": {"", "old"}, "w": {"old", "old"}, "x": {"python", "python-a"}, "y": {"", "spare"}, "z": {"gone", "spare"}} {
		f.sandboxes[id] = Sandbox{ID: id, Namespace: "a", SandboxEnv: from.env, Pool: from.pool}
	}
	for template, want := range map[string]string{"python": "x", "spare": "y", "python-a": "", "old": "vw", "ancient": "vw", "": "vwxyz"} {
		w := ask(t, s, "GET", "/v2/sandboxes?template="+template, keyA, "")
		if got := strings.Join(ids(read[[]api.ListedSandbox](t, w)), ""); got != want {
			t.Errorf("sandboxes of %q: %q, want %q", template, got, want)
		}
	}
	for _, l := range read[[]api.ListedSandbox](t, ask(t, s, "GET", "/v2/sandboxes", keyA, "")) {
		if want := map[string]string{"v": "old", "w": "old", "x": "python", "y": "spare", "z": "gone"}[l.SandboxID]; l.TemplateID != want {
			t.Errorf("%s is of template %q, want %q", l.SandboxID, l.TemplateID, want)
		}
		if alias := l.Alias == "ancient"; alias != (l.TemplateID == "old") {
			t.Errorf("%s has the alias %q", l.SandboxID, l.Alias)
		}
	}
}
