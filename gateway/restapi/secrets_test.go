package restapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// fakeSecrets keeps those of namespace a in memory.
type fakeSecrets struct {
	all   []Secret
	value string // the last one
	fails error
}

func (f *fakeSecrets) Create(_ context.Context, _, name, value string, metadata map[string]string) (Secret, error) {
	n := len(f.all)
	one := Secret{ID: fmt.Sprintf("%032x", n), Name: name, Version: 1, Metadata: metadata, CreatedAt: time.Unix(int64(n), 0), UpdatedAt: time.Unix(int64(n), 5000)}
	f.all, f.value = append(f.all, one), value
	return one, f.fails
}

func (f *fakeSecrets) find(namespace string, of SecretRef) (*Secret, error) {
	for i := range f.all {
		if one := &f.all[i]; namespace == "a" && (one.ID == of.ID || one.Name == of.Name) {
			return one, nil
		}
	}
	return nil, ErrNoSecret
}

func (f *fakeSecrets) Get(_ context.Context, namespace string, of SecretRef) (Secret, error) {
	one, err := f.find(namespace, of)
	if err != nil {
		return Secret{}, err
	}
	return *one, f.fails
}

func (f *fakeSecrets) List(context.Context, string) ([]Secret, error) {
	return append([]Secret(nil), f.all...), f.fails
}

func (f *fakeSecrets) Update(_ context.Context, namespace string, of SecretRef, value string, metadata *map[string]string) (Secret, error) {
	one, err := f.find(namespace, of)
	if err != nil {
		return Secret{}, err
	}
	f.value = value
	one.Version++
	if metadata != nil {
		one.Metadata = *metadata
	}
	return *one, nil
}

func (f *fakeSecrets) Delete(_ context.Context, namespace string, of SecretRef) error {
	_, err := f.find(namespace, of)
	return err
}

// What SDKs go by: statuses, words and shapes are E2B's, and no answer has a value.
func TestSecrets(t *testing.T) {
	kept := &fakeSecrets{}
	s := newServer(t, newFake(), func(o *Options) { o.Secrets = kept })
	id := "sec_" + fmt.Sprintf("%032x", 0)
	const invalid, missing = "Invalid secrets request", "Secret not found"
	long := strings.Repeat("k", 129)
	for _, c := range []struct {
		request, body string
		status        int
		text          string
	}{
		{"POST /secrets", `{"name":"My-Key","value":"hunter2"}`, 201, `{"createdAt":"1970-01-01T00:00:00Z","currentVersion":1,"metadata":{},"name":"my-key","secretID":"` + id + `","updatedAt":"1970-01-01T00:00:00.000005Z"}`},
		{"POST /secrets", `{"name":"b","value":"hunter2","metadata":{"team":"x"}}`, 201, `"metadata":{"team":"x"}`},
		{"POST /secrets", `{"name":"b"}`, 400, invalid},
		{"POST /secrets", `{"name":"b","value":7}`, 400, invalid},
		{"POST /secrets", `{"name":"b","value":""}`, 400, invalid},
		{"POST /secrets", `{"name":"b","value":"hunter2\n"}`, 400, invalid},
		{"POST /secrets", `{"name":"b","value":"` + strings.Repeat("v", maxSecretValue+1) + `"}`, 400, invalid},
		{"POST /secrets", `{"name":"sec_b","value":"hunter2"}`, 400, invalid},
		{"POST /secrets", `{"name":"a.b","value":"hunter2"}`, 400, invalid},
		{"POST /secrets", `{"name":"` + long + `","value":"hunter2"}`, 400, invalid},
		{"POST /secrets", `{"name":"b","value":"hunter2","metadata":{"` + long + `":"x"}}`, 400, invalid},
		{"POST /secrets", `{"name":"b","value":"hunter2","metadata":{"x":"` + strings.Repeat("v", 1025) + `"}}`, 400, invalid},
		{"GET /secrets/MY-KEY", ``, 200, `"name":"my-key"`},
		{"GET /secrets/" + strings.ToUpper(id), ``, 200, `"name":"my-key"`},
		{"GET /secrets/other", ``, 404, missing},
		{"GET /secrets/sec_0", ``, 400, invalid},
		{"GET /secrets/a%20b", ``, 400, invalid},
		{"GET /secrets?limit=0", ``, 400, invalid},
		{"GET /secrets?nextToken=x", ``, 400, "nextToken"},
		{"POST /secrets/my-key", `{"value":"hunter3"}`, 200, `"currentVersion":2`},
		{"POST /secrets/" + id, `{"value":"hunter3","metadata":{"a":"b"}}`, 200, `"currentVersion":3,"metadata":{"a":"b"}`},
		{"POST /secrets/other", `{"value":"hunter3"}`, 404, missing},
		{"POST /secrets/my-key", `{"value":"a\u0000"}`, 400, invalid},
		{"DELETE /secrets/" + id, ``, 204, ``},
		{"DELETE /secrets/other", ``, 404, missing},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		w := ask(t, s, method, path, keyA, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.text) || strings.Contains(w.Body.String(), "hunter") {
			t.Errorf("%s %.80s: %d %s, want %d %s", c.request, c.body, w.Code, w.Body, c.status, c.text)
		}
	}
	if kept.value != "hunter3" {
		t.Errorf("the last value is %q", kept.value)
	}
	for _, request := range []string{"GET /secrets/my-key", "DELETE /secrets/my-key", "POST /secrets/my-key"} {
		method, path, _ := strings.Cut(request, " ")
		if w := ask(t, s, method, path, keyB, `{"value":"mine"}`); w.Code != 404 {
			t.Errorf("%s of another namespace: %d %s", request, w.Code, w.Body)
		}
	}
	first := ask(t, s, "GET", "/secrets?limit=1", keyA, "")
	next := first.Header().Get("X-Next-Token")
	if first.Code != 200 || !strings.HasPrefix(first.Body.String(), `[{`) || !strings.Contains(first.Body.String(), `"name":"b"`) || next == "" {
		t.Fatalf("the first page: %d %s %q", first.Code, first.Body, next)
	}
	last := ask(t, s, "GET", "/secrets?limit=1&nextToken="+next, keyA, "")
	if last.Code != 200 || !strings.Contains(last.Body.String(), `"name":"my-key"`) || last.Header().Get("X-Next-Token") != "" {
		t.Errorf("the last page: %d %s", last.Code, last.Body)
	}
}

// What stands in the way is said in E2B's words.
func TestSecretsAreRefused(t *testing.T) {
	kept := &fakeSecrets{}
	s := newServer(t, newFake(), func(o *Options) { o.Secrets = kept })
	const conflict = "Secret cannot be modified in its current state"
	for err, want := range map[error]struct {
		status int
		text   string
	}{
		ErrSecretExists: {409, conflict}, ErrSecretBusy: {409, conflict}, ErrSecretLimit: {409, conflict}, ErrNoSecret: {404, "Secret not found"},
		ErrNoEgress: {501, "no egress process"}, errors.New("hunter2"): {500, "Internal error"},
	} {
		kept.fails = err
		if w := ask(t, s, "POST", "/secrets", keyA, `{"name":"a","value":"v"}`); w.Code != want.status || !strings.Contains(w.Body.String(), want.text) {
			t.Errorf("%v: %d %s", err, w.Code, w.Body)
		}
	}
	none := newServer(t, newFake(), nil)
	for _, request := range []string{"GET /secrets", "POST /secrets", "GET /secrets/a", "POST /secrets/a", "DELETE /secrets/a"} {
		method, path, _ := strings.Cut(request, " ")
		body := ""
		if method == http.MethodPost {
			body = `{"name":"a","value":"v"}`
		}
		if w := ask(t, none, method, path, keyA, body); w.Code != 501 {
			t.Errorf("%s without egress: %d %s", request, w.Code, w.Body)
		}
	}
}
