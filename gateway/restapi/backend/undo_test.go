package backend

import (
	"log/slog"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A create whose answer was lost may land at any time: it is settled by a write
// that lets it land no more.
func TestLateCreateDoesNotLand(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(kubetest.Scheme()).Build()
	x := New(Options{API: c, Cache: routecache.New(8), Log: slog.New(slog.DiscardHandler)})
	n := restapi.NewSandbox{ID: "i0123456789abcdefghij", Namespace: "team", Pool: "base"}
	if !x.undo(n) {
		t.Fatal("not settled")
	}
	s := &v1alpha1.Sandbox{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: n.ID}, s); err != nil || s.Spec.End == nil || s.Spec.End.Reason != v1alpha1.EndCanceled {
		t.Errorf("in its place is %+v, %v", s.Spec, err)
	}
	late := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: n.ID}}
	late.Spec.Namespace, late.Spec.Pool = n.Namespace, n.Pool
	if err := c.Create(t.Context(), late); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a late create: %v", err)
	}
}
