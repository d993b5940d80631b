package restapi

import (
	"maps"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/routing"
)

// bodies are valid ones for the operations that need one.
var bodies = map[string]string{
	"POST /sandboxes":                                  `{"templateID":"base"}`,
	"POST /v2/sandboxes":                               `{"templateID":"base"}`,
	"POST /sandboxes/{sandboxID}/connect":              `{"timeout":1}`,
	"POST /sandboxes/{sandboxID}/timeout":              `{"timeout":1}`,
	"PUT /sandboxes/{sandboxID}/network":               `{}`,
	"POST /v3/templates":                               `{"name":"x"}`,
	"POST /v2/templates/{templateID}/builds/{buildID}": `{"fromImage":"x"}`,
	"PATCH /templates/{templateID}":                    `{"public":false}`,
	"PATCH /v2/templates/{templateID}":                 `{"public":false}`,
	"POST /templates/tags":                             `{"target":"` + templateA + `","tags":["x"]}`,
	"DELETE /templates/tags":                           `{"name":"` + templateA + `","tags":["x"]}`,
	"POST /secrets":                                    `{"name":"other","value":"v"}`,
	"POST /secrets/{secretID}":                         `{"value":"v"}`,
}

// others are what a key of another team gets from operations that name no sandbox
// in their path; those whose answer says nothing of team a's are here on purpose.
var others = map[string]int{
	"POST /sandboxes":                                     404, // its template is team a's
	"POST /v2/sandboxes":                                  404,
	"GET /sandboxes":                                      200, // an empty list
	"GET /v2/sandboxes":                                   200,
	"GET /sandboxes/metrics":                              200,
	"GET /templates":                                      200,
	"GET /default-templates":                              200,
	"GET /templates/aliases/{alias}":                      404,
	"GET /snapshots":                                      200,
	"DELETE /templates/{templateID}":                      404, // a snapshot of team a's
	"GET /health":                                         200,
	"POST /v3/templates":                                  202, // a template of its own
	"GET /templates/{templateID}/files/{hash}":            404,
	"PUT /templates/{templateID}/files/{hash}":            403,
	"POST /v2/templates/{templateID}/builds/{buildID}":    404,
	"GET /templates/{templateID}/builds/{buildID}/status": 404,
	"GET /templates/{templateID}/builds/{buildID}/logs":   404,
	"GET /v2/templates":                                   200,
	"GET /templates/{templateID}":                         404,
	"PATCH /templates/{templateID}":                       404,
	"PATCH /v2/templates/{templateID}":                    404,
	"POST /templates/tags":                                404,
	"DELETE /templates/tags":                              404,
	"GET /templates/{templateID}/tags":                    404,
	"GET /templates/{templateID}/tags/count":              404,
	"GET /templates/{templateID}/tags/exists":             404,
	"GET /templates/{templateID}/tags/groups":             404,
	"GET /templates/{templateID}/tags/{tag}/assignments":  404,
	"GET /secrets":                                        200,
	"POST /secrets":                                       201, // a secret of its own
	"GET /secrets/{secretID}":                             404,
	"POST /secrets/{secretID}":                            404,
	"DELETE /secrets/{secretID}":                          404,
}

// needsStore are the operations that answer 501 where gateways keep no files, build nothing, or
// have no egress process.
var needsStore = map[string]bool{
	"POST /sandboxes/{sandboxID}/snapshots": true,
	"GET /snapshots":                        true,
	"DELETE /templates/{templateID}":        true,

	"POST /v3/templates":                                  true,
	"GET /templates/{templateID}/files/{hash}":            true,
	"PUT /templates/{templateID}/files/{hash}":            true,
	"POST /v2/templates/{templateID}/builds/{buildID}":    true,
	"GET /templates/{templateID}/builds/{buildID}/status": true,
	"GET /templates/{templateID}/builds/{buildID}/logs":   true,
	"POST /templates/tags":                                true,
	"DELETE /templates/tags":                              true,

	"GET /secrets":               true,
	"POST /secrets":              true,
	"GET /secrets/{secretID}":    true,
	"POST /secrets/{secretID}":   true,
	"DELETE /secrets/{secretID}": true,
}

// No operation of the document works without a key, and none shows or touches
// what is another team's. A new operation fails here until it is covered.
func TestEveryOperation(t *testing.T) {
	doc, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	operations := 0
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			operations++
			name := method + " " + path
			where := strings.NewReplacer("{sandboxID}", idA, "{alias}", "base", "{templateID}", "s0", "{secretID}", "key").Replace(path)
			if strings.HasPrefix(path, "/templates/{") && method != "DELETE" || strings.HasPrefix(path, "/v2/templates/") {
				where = strings.NewReplacer("{templateID}", templateA, "{buildID}", buildA, "{hash}", hashA, "{tag}", "default").Replace(path)
			}
			if isStreamed(op) {
				where += "?upload=allowed." + hashA
			}
			if strings.HasSuffix(path, "/tags/exists") {
				where += "?tag=default"
			}
			if path == "/sandboxes/metrics" {
				where += "?sandbox_ids=" + idA
			}
			s, f, kept := snapshotServer(t)
			s.o.Builds = &fakeBuilds{build: Build{ID: buildA, TemplateID: templateA, Name: "x", State: "ready"}}
			s.o.Secrets = &fakeSecrets{all: []Secret{{ID: strings.Repeat("0", 32), Name: "key"}}}
			if _, err := kept.Create(t.Context(), routing.KeyOwner{Namespace: "a"}, idA, nil); err != nil {
				t.Fatal(err)
			}
			before := maps.Clone(f.sandboxes)

			lists := func(status string) bool { return op.Responses.Value(status) != nil }
			answers501 := isUnsupported(op) || needsStore[name]
			if needsKey(op) && (!lists("default") || lists("501") != answers501 || lists("503") == isUnsupported(op)) {
				t.Errorf("%s: the document does not list its errors", name)
			}
			if needsKey(op) {
				for _, key := range []string{"", "e2b_1234", "Bearer x"} {
					w := ask(t, s, method, where, key, bodies[name])
					if w.Code != 401 {
						t.Errorf("%s with the key %q: %d %s", name, key, w.Code, w.Body)
					}
				}
				s.o.Serving = func() bool { return false }
				for _, key := range []string{keyA, "e2b_1234"} {
					if w := ask(t, s, method, where, key, bodies[name]); w.Code != 503 || w.Header().Get("Retry-After") != "1" {
						t.Errorf("%s with the key %q while keys are not known: %d %s", name, key, w.Code, w.Body)
					}
				}
				s.o.Serving = func() bool { return true }
			} else if name != "GET /health" && !isStreamed(op) {
				t.Errorf("%s needs no key", name)
			}

			want, listed := others[name]
			switch {
			case strings.Contains(path, "{sandboxID}"):
				want = 404
			case isUnsupported(op):
				want = 501
			case !listed:
				t.Errorf("%s: say in others what another team gets", name)
			}
			foreign := where
			if isStreamed(op) {
				foreign += "x" // what another team got for its own
			}
			w := ask(t, s, method, foreign, keyB, bodies[name])
			if w.Code != want {
				t.Errorf("%s by another team: %d %s, want %d", name, w.Code, w.Body, want)
			}
			// The 404 repeats the ID that was asked for; nothing else may have it.
			if w.Code == 200 && strings.Contains(w.Body.String(), idA) || strings.Contains(w.Body.String(), "-of-") {
				t.Errorf("%s shows another team's sandbox: %s", name, w.Body)
			}
			if len(kept.all) != 1 || len(f.made) > 0 || len(f.ended) > 0 || len(f.moved) > 0 || f.sandboxes[idA].EndAt != before[idA].EndAt {
				t.Errorf("%s by another team changed something", name)
			}

			// And it is there at all; what resumes needs one that is paused.
			if strings.HasSuffix(name, "/resume") {
				paused := f.sandboxes[idA]
				paused.Paused = true
				f.sandboxes[idA] = paused
			}
			if w := ask(t, s, method, where, keyA, bodies[name]); w.Code >= 400 && (w.Code != 501 || !isUnsupported(op)) {
				t.Errorf("%s by its own team: %d %s", name, w.Code, w.Body)
			}
			if !needsStore[name] {
				continue
			}
			if w := ask(t, newServer(t, newFake(), nil), method, where, keyA, bodies[name]); w.Code != 501 {
				t.Errorf("%s without a store: %d %s", name, w.Code, w.Body)
			}
		}
	}
	if operations < 40 {
		t.Errorf("walked %d operations only", operations)
	}
}
