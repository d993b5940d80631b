package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Every case file is read, and at least 150 cases have a source.
func TestCasesHaveSources(t *testing.T) {
	features, err := Features()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range features {
		for _, c := range f.Cases {
			if c.Source != "" {
				n++
			}
		}
	}
	if n < 150 {
		t.Errorf("%d cases have a source, want 150", n)
	}
}

func TestDiffers(t *testing.T) {
	for _, tc := range []struct {
		name, got, want string
		same            bool
	}{
		{"other fields", `{"a":1,"b":2}`, `{"a":1}`, true},
		{"another value", `{"a":1}`, `{"a":2}`, false},
		{"no field", `{}`, `{"a":"<any>"}`, false},
		{"absent", `{}`, `{"a":"<absent>"}`, true},
		{"not absent", `{"a":null}`, `{"a":"<absent>"}`, false},
		{"empty", `{"a":null,"b":[]}`, `{"a":"<empty>","b":"<empty>","c":"<empty>"}`, true},
		{"not empty", `{"a":[1]}`, `{"a":"<empty>"}`, false},
		{"empty text", `{"a":""}`, `{"a":"<string>"}`, false},
		{"kinds", `{"a":"x","b":1,"c":true,"d":[],"e":{}}`, `{"a":"<string>","b":"<number>","c":"<bool>","d":"<list>","e":"<object>"}`, true},
		{"pattern", `{"a":"0.6.2"}`, `{"a":"/^0[.]/"}`, true},
		{"pattern of a number", `{"a":0}`, `{"a":"/[^0]/"}`, false},
		{"a list", `[1,2]`, `[1,2]`, true},
		{"a longer list", `[1,2,3]`, `[1,2]`, false},
		{"contains", `[1,{"a":1},2]`, `["<contains>",{"a":1}]`, true},
		{"contains not", `[1]`, `["<contains>",2]`, false},
		{"no list", `{"a":1}`, `[]`, false},
	} {
		var got, want any
		if json.Unmarshal([]byte(tc.got), &got) != nil || json.Unmarshal([]byte(tc.want), &want) != nil {
			t.Fatal(tc.name)
		}
		if d := differs(got, want); (d == "") != tc.same {
			t.Errorf("%s: %q", tc.name, d)
		}
	}
}

// backend knows sandboxes by the REST API, and can be made to answer wrongly.
type backend struct {
	mu      sync.Mutex
	there   map[string]bool
	own     map[string]string // what is there: whose run it is of
	others  []string          // snapshots that each list has, whatever it is asked for
	made    int
	unknown func(w http.ResponseWriter) // answers GET of a sandbox that is not there
	created func()                      // is called after a create
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := strings.TrimPrefix(r.URL.Path, "/sandboxes/")
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v2/sandboxes":
		b.made++
		id := fmt.Sprint("i", b.made)
		b.there[id] = true
		var body struct{ Metadata map[string]string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		b.own[id] = body.Metadata[mark]
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"sandboxID":%q,"envdAccessToken":"t"}`, id)
		if b.created != nil {
			b.created()
		}
	case r.URL.Path == "/v2/sandboxes":
		fmt.Fprint(w, "[")
		for i, id := range slices.Sorted(maps.Keys(b.there)) {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			fmt.Fprintf(w, `{"sandboxID":%q,"metadata":{%q:%q}}`, id, mark, b.own[id])
		}
		fmt.Fprint(w, "]")
	case r.URL.Path == "/snapshots":
		listed := []map[string]string{}
		for _, id := range b.others {
			listed = append(listed, map[string]string{"snapshotID": id})
		}
		_ = json.NewEncoder(w).Encode(listed)
	case r.Method == http.MethodDelete && strings.HasPrefix(r.URL.Path, "/templates/"):
		b.others = slices.DeleteFunc(b.others, func(id string) bool { return id == strings.TrimPrefix(r.URL.Path, "/templates/") })
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Path == "/volumes":
		w.WriteHeader(http.StatusNotImplemented)
		fmt.Fprint(w, `{"code":501,"message":"no volumes"}`)
	case r.URL.Path == "/secrets":
		w.WriteHeader(http.StatusInternalServerError)
	case !b.there[id]:
		b.unknown(w)
	case r.Method == http.MethodDelete:
		delete(b.there, id)
		w.WriteHeader(http.StatusNoContent)
	}
}

func missing(w http.ResponseWriter) {
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprint(w, `{"code":404,"message":"no such sandbox"}`)
}

func verdicts(ctx context.Context, t *testing.T, b *backend, only ...string) map[string]Verdict {
	t.Helper()
	if b.there == nil {
		b.there = map[string]bool{}
	}
	b.own = map[string]string{}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	results, err := Run(ctx, Options{URL: server.URL, Key: "k", Only: only})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Verdict{}
	for _, r := range results {
		found[r.Feature+"/"+r.Case] = r.Verdict
	}
	return found
}

func TestVerdicts(t *testing.T) {
	for _, tc := range []struct {
		name, only string
		unknown    func(http.ResponseWriter)
		want       Verdict
	}{
		{"as wanted", "rest_errors/missing_get", missing, Works},
		{"another status", "rest_errors/missing_get", func(w http.ResponseWriter) { w.WriteHeader(http.StatusGone) }, Wrong},
		{"no error object", "rest_errors/missing_get", func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }, Wrong},
		{"refused", "templates/volumes", missing, Refused},
		{"not refused in E2B's words", "templates/secrets", missing, Wrong},
		{"what only we say", "rest_errors/unknown_path", func(w http.ResponseWriter) { w.WriteHeader(http.StatusGone) }, Unproven},
		{"an end", "sandboxes/kill", missing, Works},
	} {
		if got := verdicts(t.Context(), t, &backend{unknown: tc.unknown}, tc.only); got[tc.only] != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, got, tc.want)
		}
	}
}

// A run that is stopped takes away what it has made, and does not call the rest wrong.
func TestStoppedRunLeavesNothing(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	b := &backend{unknown: missing, created: stop}
	found := verdicts(ctx, t, b, "sandboxes")
	if b.made == 0 || len(b.there) > 0 {
		t.Errorf("%d made, %v left", b.made, b.there)
	}
	for name, v := range found {
		if v != NotTried {
			t.Errorf("%s: %s", name, v)
		}
	}
}

// A backend that ignores filters lists what others have; the referee leaves it alone.
func TestOthersAreLeftAlone(t *testing.T) {
	b := &backend{unknown: missing, there: map[string]bool{"others": true}, others: []string{"snapshot"}}
	ctx, stop := context.WithCancel(t.Context())
	b.created = stop // so that lists are all that the end knows by
	verdicts(ctx, t, b, "sandboxes")
	if b.made == 0 || len(b.there) != 1 || !b.there["others"] || len(b.others) != 1 {
		t.Errorf("%d made, left are %v and %v", b.made, b.there, b.others)
	}
}

func TestNoSuchCase(t *testing.T) {
	if _, err := Run(t.Context(), Options{Only: []string{"processes/nothing"}}); err == nil {
		t.Error("no error")
	}
}

func TestForms(t *testing.T) {
	results := []Result{
		{Feature: "f", Case: "a", With: "wire", Verdict: Works},
		{Feature: "f", Case: "b", With: "wire", Verdict: Wrong, Why: "<broken>"},
		{Feature: "f", Case: "c", With: "wire", Verdict: Refused, Why: "no"},
	}
	for format, want := range map[string]string{
		"text":     "1 works, 1 refused, 1 wrong, 0 unproven, 0 not tried",
		"markdown": "| f/b | wrong |",
		"json":     `"verdict": "wrong"`,
		"junit":    `<failure message="&lt;broken&gt;">`,
	} {
		var b strings.Builder
		if err := Write(&b, format, results); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%s: %v\n%s", format, err, b.String())
		}
	}
}
