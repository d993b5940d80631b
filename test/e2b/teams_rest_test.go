package e2b

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/test/stack"
)

// operation says how beta asks for what is alpha's, and what both get. $ID, $CURSOR
// and $ALIAS stand for alpha's.
type operation struct {
	query, body string
	beta, alpha int
}

// operations are all of the document: a new one has no line here, and fails.
var operations = map[string]operation{
	"GET /health": {beta: 200, alpha: 200},

	"POST /sandboxes":        {body: `{"templateID":"$ALIAS"}`, beta: 404, alpha: 201},
	"POST /v2/sandboxes":     {body: `{"templateID":"$ALIAS"}`, beta: 404, alpha: 201},
	"GET /sandboxes":         {query: "metadata=owner%3D" + mark, beta: 200, alpha: 200},
	"GET /v2/sandboxes":      {query: "nextToken=$CURSOR", beta: 200, alpha: 200},
	"GET /sandboxes/metrics": {query: "sandbox_ids=$ID", beta: 200, alpha: 200},

	"GET /sandboxes/{sandboxID}":               {beta: 404, alpha: 200},
	"POST /sandboxes/{sandboxID}/connect":      {body: `{"timeout":3000}`, beta: 404, alpha: 201}, // after the pause,
	"POST /v2/sandboxes/{sandboxID}/connect":   {body: `{"timeout":3000}`, beta: 404, alpha: 200},
	"POST /sandboxes/{sandboxID}/timeout":      {body: `{"timeout":3000}`, beta: 404, alpha: 204},
	"POST /sandboxes/{sandboxID}/refreshes":    {body: `{"duration":3000}`, beta: 404, alpha: 204},
	"PUT /sandboxes/{sandboxID}/network":       {body: `{}`, beta: 404, alpha: 204},
	"GET /sandboxes/{sandboxID}/metrics":       {beta: 404, alpha: 200},
	"GET /sandboxes/{sandboxID}/logs":          {beta: 404, alpha: 200},
	"GET /v2/sandboxes/{sandboxID}/logs":       {beta: 404, alpha: 200},
	"POST /sandboxes/{sandboxID}/pause":        {beta: 404, alpha: 204},
	"POST /sandboxes/{sandboxID}/resume":       {beta: 404, alpha: 409},
	"POST /sandboxes/{sandboxID}/fork":         {beta: 404, alpha: 501},
	"POST /sandboxes/{sandboxID}/snapshots":    {beta: 404, alpha: 201},
	"DELETE /sandboxes/{sandboxID}":            {beta: 404, alpha: 204},
	"GET /default-templates":                   {beta: 200, alpha: 200},
	"GET /templates":                           {beta: 200, alpha: 200},
	"GET /templates/aliases/{alias}":           {beta: 404, alpha: 200},
	"POST /templates":                          {beta: 501, alpha: 501},
	"GET /v2/templates":                        {beta: 200, alpha: 200},
	"POST /v2/templates":                       {beta: 501, alpha: 501},
	"POST /v3/templates":                       {body: `{"name":"No Name"}`, beta: 400, alpha: 400}, // TestTemplateBuild makes some
	"GET /templates/{templateID}":              {beta: 404, alpha: 200},
	"POST /templates/{templateID}":             {beta: 501, alpha: 501},
	"PATCH /templates/{templateID}":            {body: `{"public":false}`, beta: 404, alpha: 200},
	"DELETE /templates/{templateID}":           {beta: 404, alpha: 501},
	"PATCH /v2/templates/{templateID}":         {body: `{"public":false}`, beta: 404, alpha: 200},
	"GET /templates/{templateID}/tags":         {beta: 404, alpha: 200},
	"POST /templates/tags":                     {body: `{"target":"$ALIAS","tags":["x"]}`, beta: 404, alpha: 400}, // alpha's is a pool
	"DELETE /templates/tags":                   {body: `{"name":"$ALIAS","tags":["x"]}`, beta: 404, alpha: 400},
	"GET /templates/{templateID}/files/{hash}": {beta: 404, alpha: 404}, // alpha's is no build's
	"PUT /templates/{templateID}/files/{hash}": {query: "upload=x", beta: 403, alpha: 403},

	"POST /templates/{templateID}/builds/{buildID}":       {beta: 501, alpha: 501},
	"POST /v2/templates/{templateID}/builds/{buildID}":    {body: `{"fromImage":"debian"}`, beta: 404, alpha: 404},
	"GET /templates/{templateID}/builds/{buildID}/status": {beta: 404, alpha: 404},
	"GET /templates/{templateID}/builds/{buildID}/logs":   {beta: 404, alpha: 404},

	"GET /templates/{templateID}/tags/count":             {beta: 404, alpha: 200},
	"GET /templates/{templateID}/tags/exists":            {query: "tag=x", beta: 404, alpha: 200},
	"GET /templates/{templateID}/tags/groups":            {beta: 404, alpha: 200},
	"GET /templates/{templateID}/tags/{tag}/assignments": {beta: 404, alpha: 200},

	"GET /snapshots":             {query: "sandboxID=$ID", beta: 200, alpha: 200},
	"GET /volumes":               {beta: 501, alpha: 501},
	"POST /volumes":              {beta: 501, alpha: 501},
	"GET /volumes/{volumeID}":    {beta: 501, alpha: 501},
	"DELETE /volumes/{volumeID}": {beta: 501, alpha: 501},
	"GET /secrets":               {beta: 501, alpha: 501},
	"POST /secrets":              {body: `{"name":"a","value":"v"}`, beta: 501, alpha: 501}, // no egress process has run
	"GET /secrets/{secretID}":    {beta: 501, alpha: 501},
	"POST /secrets/{secretID}":   {body: `{"value":"v"}`, beta: 501, alpha: 501},
	"DELETE /secrets/{secretID}": {beta: 501, alpha: 501},
}

// everyOperation has beta ask for what is alpha's by every operation.
func (v victim) everyOperation(t *testing.T, beta team) {
	asked, missing := 0, maps.Clone(operations)
	for path, item := range document(t).Paths.Map() {
		for method := range item.Operations() {
			name := method + " " + path
			o, covered := operations[name]
			if !covered {
				t.Errorf("%s: say in operations what another team gets", name)
				continue
			}
			delete(missing, name)
			asked++
			a := v.ask(t, beta, name, o)
			if a.Status != o.beta {
				t.Errorf("%s by beta: %v, want %d", name, a, o.beta)
			}
			v.silent(t, name, a)
			// Nor does it say that there is something.
			nothing := v
			nothing.SandboxID = "i" + strings.Repeat("0", 20)
			b := nothing.ask(t, beta, name, o)
			if x, y := v.plain(a), nothing.plain(b); x != y {
				t.Errorf("%s tells a sandbox of others from none:\n%s\n%s", name, x, y)
			}
		}
	}
	for name := range missing {
		t.Errorf("%s is not in the document", name)
	}
	if asked < 40 {
		t.Errorf("asked %d operations only", asked)
	}
}

// ownOperations has alpha do the same, its end last.
func (v victim) ownOperations(t *testing.T) {
	names := slices.SortedFunc(maps.Keys(operations), func(a, b string) int {
		return strings.Compare(strings.TrimPrefix(b, "DELETE"), strings.TrimPrefix(a, "DELETE"))
	})
	last := "DELETE /sandboxes/{sandboxID}"
	for _, name := range append(slices.DeleteFunc(names, func(n string) bool { return n == last }), last) {
		a := v.ask(t, v.owner, name, operations[name])
		if a.Status != operations[name].alpha {
			t.Errorf("%s by alpha: %v, want %d", name, a, operations[name].alpha)
		}
		if name == "GET /sandboxes" && !strings.Contains(string(a.Body), v.SandboxID) {
			t.Errorf("%s by alpha does not have its sandbox: %v", name, a)
		}
	}
}

func (v victim) ask(t *testing.T, who team, name string, o operation) stack.Answer {
	t.Helper()
	method, path, _ := strings.Cut(name, " ")
	fill := strings.NewReplacer("{sandboxID}", v.SandboxID, "{alias}", mark+"-template", "{templateID}", mark+"-template",
		"{buildID}", "x", "{tag}", "x", "{hash}", strings.Repeat("0", 64), "{volumeID}", "x", "{secretID}", "x",
		"$ALIAS", mark+"-template", "$CURSOR", url.QueryEscape(v.cursor), "$ID", v.SandboxID)
	path = fill.Replace(path)
	if o.query != "" {
		path += "?" + fill.Replace(o.query)
	}
	return who.ask(t, method, path, fill.Replace(o.body))
}

// silent checks that an answer has nothing of alpha's. A 404 repeats what was
// asked for.
func (v victim) silent(t *testing.T, what string, a stack.Answer) {
	t.Helper()
	text := fmt.Sprint(a.Header, string(a.Body))
	if a.Status == http.StatusNotFound {
		text = strings.NewReplacer(v.SandboxID, "", mark+"-template", "").Replace(text)
	}
	for _, secret := range []string{mark, v.SandboxID, v.EnvdAccessToken, v.TrafficAccessToken, v.owner.namespace, v.address} {
		if strings.Contains(text, secret) {
			t.Errorf("%s shows %q, which is alpha's: %s", what, secret, text)
		}
	}
}

// plain is an answer without what differs from one request to the next.
func (v victim) plain(a stack.Answer) string {
	h := a.Header.Clone()
	for _, name := range []string{"Date", "Ratelimit-Remaining", "Ratelimit-Reset", "X-Envoy-Upstream-Service-Time", "X-Request-Id"} {
		h.Del(name)
	}
	return strings.ReplaceAll(fmt.Sprint(a.Status, h, string(a.Body)), v.SandboxID, "ID")
}
