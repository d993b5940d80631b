package extproc

import (
	"context"
	"net/http"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"k8s.io/apimachinery/pkg/types"
)

// A request that waits for the API server is seen by a release that is prepared
// meanwhile, until it is answered; it is no use before it is authorised.
func TestLiveReadIsSeenUntilTheAnswer(t *testing.T) {
	for _, tc := range []struct {
		name    string
		private bool
		status  int
	}{{"authorised", false, 0}, {"not authorised", true, http.StatusForbidden}} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			r := testRoute("a")
			if tc.private {
				r.Private, r.TokenUID = true, new(types.UID("uid-a"))
			}
			f.resolver.live["a"] = running(r)
			seen := 0
			look := func(where string) {
				seen++
				if !f.activity.isResolving("a") || f.activity.isParked("a") {
					t.Errorf("%s: resolving %d, parked %d; want 1, 0", where, f.activity.resolving["a"], f.activity.parked["a"])
				}
			}
			f.resolver.onRead = func(context.Context) error { look("during the read"); return nil }
			s := newStream(t.Context(), host("a")...)
			s.onSend = func(r *extprocv3.ProcessingResponse) error {
				if r.GetImmediateResponse() == nil { // a refusal needs no sandbox
					look("at an answer")
				}
				return nil
			}
			if err := f.Process(s); err != nil {
				t.Fatal(err)
			}
			if got := s.answer(t); got.status != tc.status || seen < 2 {
				t.Errorf("answer %+v, looked %d times", got, seen)
			}
			if f.activity.isResolving("a") {
				t.Error("an answered request is still being resolved")
			}
			if noted := f.activity.ClaimUse("a", r.ClaimID).Load() != 0; noted == tc.private {
				t.Errorf("noted: %v", noted)
			}
		})
	}
}

func (a *fakeActivity) Resolving(id string) func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resolving[id]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.resolving[id]--
	}
}

func (a *fakeActivity) isResolving(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.resolving[id] > 0
}
