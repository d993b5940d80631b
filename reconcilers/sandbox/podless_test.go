package sandbox

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A sandbox without a pod has its startup timeout from when the controller has first
// seen it, whatever the API server's clock says of its age; a later one of the same
// ID has its own.
func TestPodlessSandboxCountsFromItsFirstSight(t *testing.T) {
	for name, age := range map[string]time.Duration{"this clock is ahead": time.Hour, "this clock is behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			made := func(uid types.UID) *v1alpha1.Sandbox {
				s, _ := bound()
				s.UID, s.CreationTimestamp = uid, metav1.NewTime(now.Add(-age))
				s.Finalizers = []string{v1alpha1.FinalizerSandbox}
				s.Spec.FirstRequest, s.Spec.Binding = true, nil
				return s
			}
			g := newRig(t, made("first"))
			isThere := func() bool {
				t.Helper()
				s := &v1alpha1.Sandbox{}
				err := g.Client.Get(t.Context(), client.ObjectKey{Name: "s"}, s)
				if client.IgnoreNotFound(err) != nil {
					t.Fatal(err)
				}
				return !apierrors.IsNotFound(err) && s.DeletionTimestamp == nil
			}
			for _, uid := range []types.UID{"first", "second"} {
				if uid == "second" {
					s := g.sandbox(t)
					s.Finalizers = nil
					if err := g.Client.Update(t.Context(), s); err != nil { // the first goes
						t.Fatal(err)
					}
					if err := g.Client.Create(t.Context(), made(uid)); err != nil {
						t.Fatal(err)
					}
				}
				if wait, _ := g.step(t); !isThere() || wait != v1alpha1.DefaultStartupTimeout {
					t.Fatalf("%s: there: %v, looked at again after %v", uid, isThere(), wait)
				}
				g.clock.SetTime(g.clock.Now().Add(v1alpha1.DefaultStartupTimeout - time.Second))
				if wait, _ := g.step(t); !isThere() || wait != time.Second {
					t.Fatalf("%s, a second before its time: there: %v, looked at again after %v", uid, isThere(), wait)
				}
				g.clock.SetTime(g.clock.Now().Add(time.Second))
				if g.step(t); isThere() {
					t.Fatalf("%s is still there when its startup timeout is over", uid)
				}
			}
		})
	}
}
