package e2b

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	protoPackage = regexp.MustCompile(`(?m)^package (\w+);`)
	protoService = regexp.MustCompile(`(?m)^service (\w+) {`)
	protoCall    = regexp.MustCompile(`(?m)^\s+rpc (\w+)\(`)
)

// procedures are the calls that sandboxd serves, from its .proto files, and its
// other paths. /health answers anybody, as the contract has it.
func procedures(t *testing.T) []string {
	t.Helper()
	all := []string{"GET /files?path=" + markPath, "POST /files?path=" + markPath, "POST /files/compose", "GET /envs", "GET /metrics"}
	files, err := filepath.Glob("../../sandboxd/proto/*/*.proto")
	if err != nil || len(files) == 0 {
		t.Fatalf("no .proto files of sandboxd: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		of := func(r *regexp.Regexp) string { return string(r.FindSubmatch(text)[1]) }
		for _, call := range protoCall.FindAllSubmatch(text, -1) {
			all = append(all, fmt.Sprintf("POST /%s.%s/%s", of(protoPackage), of(protoService), call[1]))
		}
	}
	if len(all) < 20 {
		t.Fatalf("only %d: %v", len(all), all)
	}
	return all
}

// everyWay has beta ask alpha's sandboxd for everything, and its private ports,
// in each form of address and with all the tokens that beta has.
func (v victim) everyWay(t *testing.T, own victim) {
	for _, token := range []string{"", own.EnvdAccessToken, own.TrafficAccessToken, v.TrafficAccessToken, own.owner.key} {
		for _, name := range procedures(t) {
			v.refused(t, name, "49983", 401, map[string]string{"X-Access-Token": token, "X-API-KEY": own.owner.key, "Authorization": "Basic cm9vdDo="})
		}
		for _, path := range []string{"/init", "/freeze", "/%69nit", "//init"} {
			v.refused(t, "POST "+path, "49983", 404, map[string]string{"X-Access-Token": token})
		}
		if token != v.TrafficAccessToken {
			v.refused(t, "GET /", "8000", 403, map[string]string{"E2b-Traffic-Access-Token": token, "X-API-KEY": own.owner.key})
		}
	}
	// A URL signed with beta's token.
	for _, operation := range []string{"read", "write"} {
		method := map[string]string{"read": "GET", "write": "POST"}[operation]
		sum := sha256.Sum256([]byte(markPath + ":" + operation + "::" + own.EnvdAccessToken))
		signature := "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
		query := url.Values{"path": {markPath}, "signature": {signature}}.Encode()
		v.refused(t, method+" /files?"+query, "49983", 401, nil)
	}
	// A host that names beta's sandbox and headers that name alpha's: the host
	// counts, and what beta gets is its own.
	r := v.file(own.EnvdAccessToken)
	r.host = "49983-" + own.SandboxID + ".localhost"
	if a := r.send(t); a.Status != 200 || string(a.Body) != "beta's own" {
		t.Errorf("beta's own host with headers that name alpha's sandbox: %v", a)
	}
	// The right token opens what the others did not.
	if a := v.file(v.EnvdAccessToken).send(t); a.Status != 200 || string(a.Body) != mark {
		t.Errorf("alpha's file with its own token: %v", a)
	}
	r = request{method: "GET", path: "/", host: "8000-" + v.SandboxID + ".localhost", header: map[string]string{"E2b-Traffic-Access-Token": v.TrafficAccessToken}}
	if a := r.send(t); a.Status != 502 || !strings.Contains(string(a.Body), "port is not open") {
		t.Errorf("alpha's port with its own token: %v", a)
	}
}

// refused sends a request to alpha's sandbox by its host, by headers, and by path.
func (v victim) refused(t *testing.T, name, port string, status int, header map[string]string) {
	t.Helper()
	method, path, _ := strings.Cut(name, " ")
	byHeaders := maps.Clone(header)
	if byHeaders == nil {
		byHeaders = map[string]string{}
	}
	byHeaders["E2b-Sandbox-Id"], byHeaders["E2b-Sandbox-Port"] = v.SandboxID, port
	for form, r := range map[string]request{
		"host":    {path: path, host: port + "-" + v.SandboxID + ".localhost", header: header},
		"headers": {path: path, header: byHeaders},
		"path":    {path: "/sandboxes/" + v.SandboxID + "/" + port + path, header: header},
	} {
		r.method = method
		if method == "POST" {
			r.body = "{}"
		}
		a := r.send(t)
		if a.Status != status {
			t.Errorf("%s by beta, by %s: %v, want %d", name, form, a, status)
		}
		a.Body = []byte(strings.ReplaceAll(string(a.Body), v.SandboxID, "")) // errors of the edge name it
		v.silent(t, name+" by "+form, a)
	}
}

// firstRequests has beta send requests that would make a sandbox, or wake one.
func (v victim) firstRequests(t *testing.T, own victim) {
	for _, c := range []struct {
		id, pool string
		status   int
	}{
		{v.SandboxID, own.owner.namespace + "/base", 502},
		{v.SandboxID, v.owner.namespace + "/base", 502},
		{"betas-new", v.owner.namespace + "/base", 403},
	} {
		a := request{method: "GET", path: "/health", header: map[string]string{
			"X-Sandbox-Id": c.id, "X-Sandbox-Port": "49983", "X-Sandbox-Pool": c.pool, "X-Sandbox-Api-Key": own.owner.key,
		}}.send(t)
		if a.Status != c.status {
			t.Errorf("%s from %s with beta's key: %v, want %d", c.id, c.pool, a, c.status)
		}
	}
	if _, found := shared.Sandbox(t, "betas-new"); found {
		t.Error("beta made a sandbox from alpha's pool")
	}
}
