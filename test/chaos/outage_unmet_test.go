package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// unmetOfEach is how many sandboxes with sandboxd are made of each kind of ID.
const unmetOfEach = 3

// unmet are sandboxes with sandboxd that one gateway has made, and that no other gateway has
// initialised: the UID of the pod by ID.
type unmet map[string]string

// makeUnmet makes sandboxes of both kinds of IDs, generated and named, through the
// first gateway. Then it restarts the second one, so that this one joins after all of them
// were made. resumed are those of them that were paused once.
func (o *outage) makeUnmet() (made unmet, resumed []string) {
	t := o.t
	t.Helper()
	shared.Pool(t, o.ns, "unmet", 2*unmetOfEach, stack.WithIdleTimeout(0), withSandboxd)
	made = unmet{}
	resumed = o.makeResumed(made)
	for i := range unmetOfEach {
		id := fmt.Sprintf("unmet-%d", i)
		made[id] = shared.Touch(t, id, o.ns+"/unmet").PodUID
		id = createUnmet(t)
		made[id] = shared.Touch(t, id, "").PodUID
	}
	before := processes(t)["gateway-2"]
	kill(t, "gateway-2", before.pid)
	ready := strings.TrimSuffix(shared.Up.Gateways[1].MetricsURL, "metrics") + "readyz"
	shared.Eventually(t, time.Minute, "gateway-2 to join late", func() (bool, string) {
		if now := processes(t)["gateway-2"]; now.pid == 0 || now.pid == before.pid {
			return false, fmt.Sprintf("process %d", now.pid)
		}
		c := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := c.Get(ready)
		if err != nil {
			return false, err.Error()
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK, res.Status
	})
	return made, resumed
}

// createUnmet makes a sandbox whose ID the REST API generates.
func createUnmet(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, shared.Up.Gateways[0].URL+"/v2/sandboxes",
		strings.NewReader(`{"templateID":"unmet","timeout":600}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", shared.Up.APIKey)
	req.Header.Set("Content-Type", "application/json")
	a, err := stack.Send(nil, req)
	var body struct{ SandboxID string }
	if err != nil || a.Status != http.StatusCreated || json.Unmarshal(a.Body, &body) != nil || !v1alpha1.GeneratedID(body.SandboxID) {
		t.Fatalf("create: %v, %v", a, err)
	}
	return body.SandboxID
}

// meet sends requests for each of them through every other gateway, to the port of its server
// and to sandboxd's, and checks that the sandbox's own pod answers at once.
func (o *outage) meet(made unmet) {
	t := o.t
	t.Helper()
	var slowest time.Duration
	for _, g := range shared.Up.Gateways[1:] {
		for id, pod := range made {
			for _, r := range []stack.Request{{ID: id}, {ID: id, Port: fmt.Sprint(v1alpha1.SandboxdPort), Path: "/health"}} {
				req, err := r.Build(t.Context(), g.URL)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				a, err := stack.Send(&http.Client{Timeout: 10 * time.Second}, req)
				slowest = max(slowest, time.Since(began))
				switch {
				case err != nil, r.Port != "" && a.Status != http.StatusNoContent:
					t.Errorf("%s, port %s, at %s, which had not met it: %v, %v", id, r.Port, g.Name, a, err)
				case r.Port == "" && (a.Echo == nil || a.Echo.PodUID != pod):
					t.Errorf("%s at %s, which had not met it: %v, want an answer of pod %s", id, g.Name, a, pod)
				}
			}
		}
	}
	t.Logf("%d sandboxes were met by two gateways without the API server, the slowest answer after %v", len(made), slowest.Round(time.Millisecond))
}
