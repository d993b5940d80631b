package address

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := corev1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

func loaded(t *testing.T, c *clocktesting.FakeClock) *Ledger {
	t.Helper()
	l := NewLedger(c, 0)
	if l.Free("10.0.0.1").Free {
		t.Fatal("an address is free before the ledger is loaded")
	}
	if err := l.Load(t.Context(), fake.NewClientBuilder().WithScheme(scheme(t)).Build()); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLedgerHoldsUntilAfterTheFence(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Now())
	l := loaded(t, c)
	if !l.Free("10.0.0.1").Free {
		t.Fatal("an address that nobody had is not free")
	}
	l.NoteClaim("a", "s", "10.0.0.1")
	l.NoteClaim("b", "s", "10.0.0.1")
	c.Step(time.Hour)
	if l.Free("10.0.0.1").Free {
		t.Error("free without a fence")
	}
	l.NoteFenced("a", "10.0.0.1")
	c.Step(DefaultCooldown)
	if l.Free("10.0.0.1").Free {
		t.Error("free while another claim is not fenced")
	}
	if !l.SafelyFenced("a") || l.SafelyFenced("b") {
		t.Error("a is fenced, b is not")
	}
	l.NoteFenced("b", "10.0.0.1")
	c.Step(DefaultCooldown - time.Millisecond)
	if v := l.Free("10.0.0.1"); v.Free || v.RetryAfter != time.Millisecond {
		t.Errorf("just before the hold is over: %+v", v)
	}
	c.Step(time.Millisecond)
	if v := l.Free("10.0.0.1"); !v.Free {
		t.Errorf("after the hold: %+v", v)
	}
}

func TestLedgerNeverGoesBack(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Now())
	l := loaded(t, c)
	l.NoteFenced("a", "10.0.0.1")
	c.Step(DefaultCooldown)
	l.NoteClaim("a", "s", "10.0.0.1") // an old view
	l.NoteFenced("a", "10.0.0.1")     // again
	if v := l.Free("10.0.0.1"); !v.Free {
		t.Errorf("a fenced claim holds its address again: %+v", v)
	}
}

func TestLedgerForgetsOldFences(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Now())
	l := loaded(t, c)
	l.NoteClaim("held", "s", "10.0.0.1")
	for _, claim := range []string{"a", "b", "c"} {
		l.NoteFenced(claim, "10.0.0.2")
	}
	c.Step(keepFenced + DefaultCooldown)
	l.NoteFenced("d", "10.0.0.3")
	if len(l.claims) != 2 || len(l.byAddress) != 2 || len(l.Unfenced()) != 1 || len(l.UnfencedOf("s")) != 1 {
		t.Errorf("claims %v, addresses %v", l.claims, l.byAddress)
	}
	l.NoteClaim("another", "s", "10.0.0.4")
	l.NoteFencedInStatus("held")
	if held := l.UnfencedOf("s"); len(held) != 1 || held[0] != (UnfencedClaim{"another", "s", "10.0.0.4"}) {
		t.Errorf("held %v", held)
	}
	l.NoteFenced("another", "10.0.0.4")
	if len(l.UnfencedOf("s")) != 0 || len(l.bySandbox) != 0 {
		t.Errorf("sandboxes %v", l.bySandbox)
	}
}

func sandbox(name, claim, address string, fenced *time.Time) *v1alpha1.Sandbox {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: claim}
	s.Status.Address, s.Status.AddressClaim = address, claim
	if fenced != nil {
		at := metav1.NewMicroTime(*fenced)
		s.Status.FencedAt = &at
	}
	return s
}

func TestLoadKnowsWhatThePredecessorKnew(t *testing.T) {
	now := time.Now()
	c := clocktesting.NewFakeClock(now)
	long, late := now.Add(-time.Hour), now.Add(-10*time.Second)
	pod := func(name, claim, address string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name,
			Labels:      map[string]string{v1alpha1.LabelPool: "p"},
			Annotations: map[string]string{v1alpha1.AnnotationClaim: claim, v1alpha1.AnnotationAddress: address}}}
	}
	live := fake.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(&v1alpha1.Sandbox{}).WithObjects(
		sandbox("running", "c1", "10.0.0.1", nil),
		sandbox("ended-long-ago", "c2", "10.0.0.2", &long),
		sandbox("ended-lately", "c3", "10.0.0.3", &late), // by a clock that may be ahead of this one
		pod("claimed", "c4", "10.0.0.4"),                 // its Sandbox does not have the address yet
		pod("slow-to-go", "c2", "10.0.0.2"),
		pod("idle", "", "10.0.0.5"),
	).Build()
	l := NewLedger(c, 0)
	if err := l.Load(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	c.Step(time.Second)
	for address, free := range map[string]bool{
		"10.0.0.1": false, "10.0.0.3": false, "10.0.0.4": false, "10.0.0.5": true,
	} {
		if got := l.Free(address); got.Free != free {
			t.Errorf("%s: %+v, want free %v", address, got, free)
		}
	}
	c.Step(DefaultCooldown)
	for _, address := range []string{"10.0.0.2", "10.0.0.3"} {
		if v := l.Free(address); !v.Free {
			t.Errorf("%s: %+v after the hold", address, v)
		}
	}
}

// TestLoadTellsAFormerClaimFromTheOneBoundNow: the address on record is a former
// claim's; the pod of the one bound now has another.
func TestLoadTellsAFormerClaimFromTheOneBoundNow(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Now())
	long := c.Now().Add(-time.Hour)
	bound := sandbox("bound-anew", "former", "10.0.0.1", nil)
	bound.Spec.Binding.ClaimID = "current"
	ended := sandbox("ended", "former-2", "10.0.0.3", &long)
	ended.Spec.Binding.ClaimID = "current-2"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "still-there", Labels: map[string]string{v1alpha1.LabelPool: "p"},
		Annotations: map[string]string{v1alpha1.AnnotationClaim: "former-2", v1alpha1.AnnotationAddress: "10.0.0.3"}}}
	live := fake.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(&v1alpha1.Sandbox{}).WithObjects(bound, ended, pod).Build()
	l := NewLedger(c, 0)
	if err := l.Load(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	l.NoteClaim("current", "s", "10.0.0.2")
	if l.Free("10.0.0.2").Free {
		t.Error("the address of the claim bound now is free")
	}
	l.NoteFenced("current", "10.0.0.2")
	c.Step(DefaultCooldown)
	if l.Free("10.0.0.1").Free || !l.Free("10.0.0.2").Free {
		t.Error("the fence of the claim bound now is one of the former claim's address")
	}
	if l.SafelyFenced("former-2") || l.Free("10.0.0.3").Free {
		t.Error("a record's fence lets the pod of a former claim go, which may run still")
	}
}

func TestDecide(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	other := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "other"}}
	self := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "self", UID: "self"}}
	for _, tt := range []struct {
		name      string
		pods      []corev1.Pod
		sandboxes []v1alpha1.Sandbox
		free      bool
		retry     time.Duration
	}{
		{name: "fresh", pods: []corev1.Pod{self}, free: true},
		{name: "another pod shows it", pods: []corev1.Pod{self, other}, retry: pollBusy},
		{name: "an unfenced sandbox had it", sandboxes: []v1alpha1.Sandbox{*sandbox("a", "c", "x", nil)}, retry: pollBusy},
		{name: "fenced just now", sandboxes: []v1alpha1.Sandbox{*sandbox("a", "c", "x", ago(time.Second))}, retry: DefaultCooldown - time.Second},
		{name: "fenced long enough ago", sandboxes: []v1alpha1.Sandbox{*sandbox("a", "c", "x", ago(DefaultCooldown))}, free: true},
		{name: "one of several is unfenced", retry: pollBusy, sandboxes: []v1alpha1.Sandbox{
			*sandbox("a", "c", "x", ago(time.Hour)), *sandbox("b", "d", "x", nil), *sandbox("c", "e", "x", ago(time.Hour))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := Decide("self", tt.pods, tt.sandboxes, now, DefaultCooldown)
			if v.Free != tt.free || v.RetryAfter != tt.retry || (v.Reason == "") != v.Free {
				t.Errorf("%+v, want free %v, retry after %v", v, tt.free, tt.retry)
			}
		})
	}
}

func TestShows(t *testing.T) {
	for _, tt := range []struct {
		ip, noted string
		want      int
	}{{"", "", 0}, {"a", "", 1}, {"", "a", 1}, {"a", "a", 1}, {"a", "b", 2}} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationAddress: tt.noted}}}
		pod.Status.PodIP = tt.ip
		if got := Shows(pod); len(got) != tt.want {
			t.Errorf("ip %q, noted %q: %v", tt.ip, tt.noted, got)
		}
	}
}
