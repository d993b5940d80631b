package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// noStartWithin bounds the answer to a request to a pool whose image does not exist.
const noStartWithin = 10 * time.Second

// A first request to a pool whose image does not exist is told so within ten seconds, also if the
// pool makes pods only for requests. Once the image is there, it is served.
func TestFirstRequestToAPoolWithoutItsImage(t *testing.T) {
	t.Parallel()
	ns := shared.Namespace(t)
	pools := map[string]int32{"stocked": 2, "on-demand": 0}
	for name, replicas := range pools {
		pool := stack.EchoPool(ns, name, replicas, func(p *v1alpha1.SandboxPool) {
			p.Spec.Template.Template.Spec.Containers[0].Image = "local/absent"
		})
		if err := shared.Client.Create(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	for name := range pools {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			a := shared.Do(t, nil, stack.Request{ID: "absent-" + name, Pool: ns + "/" + name})
			took := time.Since(began)
			if a.Status != http.StatusServiceUnavailable || !strings.Contains(string(a.Body), "cannot start: ErrImagePull") {
				t.Errorf("%v, want 503 and why no pod starts", a)
			}
			if took > noStartWithin {
				t.Errorf("told after %v, want %v at most", took, noStartWithin)
			}
			if _, found := shared.Sandbox(t, "absent-"+name); found {
				t.Error("a sandbox was made")
			}
			var pool v1alpha1.SandboxPool
			if err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, &pool); err != nil {
				t.Fatal(err)
			}
			mended := pool.DeepCopy()
			mended.Spec.Template.Template.Spec.Containers[0].Image = "local/echo"
			if err := shared.Client.Patch(t.Context(), mended, client.MergeFrom(&pool)); err != nil {
				t.Fatal(err)
			}
			shared.Touch(t, "mended-"+name, ns+"/"+name)
		})
	}
}
