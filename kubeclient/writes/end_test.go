package writes_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

func newSandbox(t *testing.T) *v1alpha1.Sandbox {
	t.Helper()
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: kubetest.Name("s")}, Spec: v1alpha1.SandboxSpec{
		Namespace: "n", Pool: "p", Binding: &v1alpha1.Binding{ClaimID: "c", PodName: "pod", PodUID: "u"},
	}}
	if err := kubetest.Client(t).Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func endOf(t *testing.T, s *v1alpha1.Sandbox) *v1alpha1.End {
	t.Helper()
	if err := kubetest.Client(t).Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		t.Fatal(err)
	}
	return s.Spec.End
}

func TestEndIsWrittenOnce(t *testing.T) {
	c, s := kubetest.Client(t), newSandbox(t)
	reasons := []v1alpha1.EndReason{v1alpha1.EndReleased, v1alpha1.EndIdleTimeout, v1alpha1.EndDeleted, v1alpha1.EndFailed}
	var all sync.WaitGroup
	for _, r := range reasons {
		all.Go(func() {
			if err := writes.EndSandbox(t.Context(), c, s.Name, r, string(r)); err != nil {
				t.Errorf("%s: %v", r, err)
			}
		})
	}
	all.Wait()
	first := endOf(t, s)
	if first == nil || first.At.IsZero() || first.Message != string(first.Reason) {
		t.Fatalf("end %+v", first)
	}
	if err := writes.EndSandbox(t.Context(), c, s.Name, v1alpha1.EndCompleted, "too late", writes.OfClaim("c")); err != nil {
		t.Error(err)
	}
	if again := endOf(t, s); again.Reason != first.Reason {
		t.Errorf("the end changed from %+v to %+v", first, again)
	}
}

func TestEndOfSomethingElse(t *testing.T) {
	c, s := kubetest.Client(t), newSandbox(t)
	for name, test := range map[string]writes.Test{"claim": writes.OfClaim("another"), "UID": writes.OfUID("another"), "binding": writes.Unbound()} {
		if err := writes.EndSandbox(t.Context(), c, s.Name, v1alpha1.EndFailed, "", test); !errors.Is(err, writes.ErrStale) {
			t.Errorf("another %s: %v, want ErrStale", name, err)
		}
	}
	if end := endOf(t, s); end != nil {
		t.Errorf("ended: %+v", end)
	}
	if err := writes.EndSandbox(t.Context(), c, s.Name, v1alpha1.EndFailed, "", writes.OfClaim("c"), writes.OfUID(s.UID)); err != nil || endOf(t, s) == nil {
		t.Errorf("the right one: %v, end %+v", err, s.Spec.End)
	}
	if err := writes.EndSandbox(t.Context(), c, kubetest.Name("none"), v1alpha1.EndFailed, ""); !apierrors.IsNotFound(err) {
		t.Errorf("an ID without a record: %v", err)
	}
}

func TestEndOfOneWithoutAPod(t *testing.T) {
	c, s := kubetest.Client(t), newSandbox(t)
	s.Spec.Binding = nil
	if err := c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := writes.EndSandbox(t.Context(), c, s.Name, v1alpha1.EndStartupTimeout, "", writes.Unbound()); err != nil || endOf(t, s) == nil {
		t.Errorf("%v, end %+v", err, s.Spec.End)
	}
}

// An end that was judged from an older spec is not written: not after the end time
// was moved, nor after anything else that the sandbox was judged by may have been.
func TestEndOfAnOlderSpec(t *testing.T) {
	c, s := kubetest.Client(t), newSandbox(t)
	judged := s.Generation
	later := metav1.NewTime(time.Now().Add(time.Hour))
	s.Spec.Timeouts.EndAt = &later
	if err := c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := writes.EndSandbox(t.Context(), c, s.Name, v1alpha1.EndEndAt, "", writes.OfGeneration(judged)); !errors.Is(err, writes.ErrStale) || endOf(t, s) != nil {
		t.Errorf("%v, want ErrStale; end %+v", err, s.Spec.End)
	}
	s.Status.Phase = v1alpha1.SandboxRunning
	if err := c.Status().Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := writes.EndSandbox(t.Context(), c, s.Name, v1alpha1.EndEndAt, "", writes.OfGeneration(judged+1)); err != nil || endOf(t, s) == nil {
		t.Errorf("the spec as it is, with another status: %v, end %+v", err, s.Spec.End)
	}
}

func TestMessagesAndReasons(t *testing.T) {
	c, s := kubetest.Client(t), newSandbox(t)
	if err := writes.EndSandbox(t.Context(), c, s.Name, "Whatever", ""); !apierrors.IsInvalid(err) || errors.Is(err, writes.ErrStale) {
		t.Errorf("a reason that does not exist: %v, want it invalid", err)
	}
	if err := writes.EndSandbox(t.Context(), c, s.Name, v1alpha1.EndFailed, strings.Repeat("ü", 2000)); err != nil {
		t.Fatal(err)
	}
	if got := []rune(endOf(t, s).Message); len(got) != 1024 || got[1023] != '…' {
		t.Errorf("a message of %d characters", len(got))
	}
}
