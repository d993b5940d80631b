package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// makeResumed adds to made sandboxes that were paused and resumed once through the first
// gateway, as their status says.
func (o *outage) makeResumed(made unmet) (resumed []string) {
	t := o.t
	t.Helper()
	shared.Pool(t, o.ns, "resumed", unmetOfEach, stack.WithIdleTimeout(0), stack.WithFreezer())
	for range unmetOfEach {
		var body struct{ SandboxID string }
		if a := o.first(http.MethodPost, "/v2/sandboxes", `{"templateID":"resumed","timeout":600}`, http.StatusCreated); json.Unmarshal(a.Body, &body) != nil {
			t.Fatalf("create: %v", a)
		}
		id := body.SandboxID
		shared.Eventually(t, time.Minute, id+" to answer", func() (bool, string) {
			req, err := stack.Request{ID: id}.Build(t.Context(), shared.Up.Gateways[0].URL)
			if err != nil {
				t.Fatal(err)
			}
			a, err := stack.Send(nil, req)
			if a.Echo != nil {
				made[id] = a.Echo.PodUID
			}
			return a.Echo != nil, fmt.Sprint(a, err)
		})
		o.first(http.MethodPost, "/sandboxes/"+id+"/pause", "", http.StatusNoContent)
		o.first(http.MethodPost, "/sandboxes/"+id+"/connect", `{"timeout":600}`, http.StatusCreated)
		shared.Eventually(t, time.Minute, id+" to run again by its status", func() (bool, string) {
			s, ok := shared.Sandbox(t, id)
			return ok && v1alpha1.StateOfPause(&s) == v1alpha1.ReasonResumed, fmt.Sprintf("%+v", s.Status.Pause)
		})
		resumed = append(resumed, id)
	}
	return resumed
}

// change changes the spec of each sandbox, so that nothing but its own status can have said
// since whether it runs.
func (o *outage) change(ids []string) {
	o.t.Helper()
	for _, id := range ids {
		o.first(http.MethodPost, "/sandboxes/"+id+"/timeout", `{"timeout":900}`, http.StatusNoContent)
	}
}

// first asks the REST API of the first gateway.
func (o *outage) first(method, path, body string, want int) stack.Answer {
	o.t.Helper()
	a, err := shared.Up.Gateways[0].REST(o.t.Context(), nil, shared.Up.APIKey, method, path, body)
	if err != nil || a.Status != want {
		o.t.Fatalf("%s %s: %v, %v, want %d", method, path, a, err, want)
	}
	return a
}
