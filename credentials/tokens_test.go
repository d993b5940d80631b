package credentials

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

func TestTokens(t *testing.T) {
	tokens := tokensOf(nil, 7)
	// printf sandbox-traffic-hello/u-1 | openssl dgst -sha256 -mac HMAC -macopt hexkey:0707…07
	const want = "fe5695fc85da75d5943f019e2c4d72e20d9ab7efe23ee136c9761f3a73585b39"
	if got := tokens.Traffic("hello", "u-1"); got != want {
		t.Errorf("traffic token %s, want %s", got, want)
	}
	for name, tc := range map[string]struct {
		uid   types.UID
		token string
		valid bool
	}{
		"right":                     {"u-1", want, true},
		"upper case":                {"u-1", strings.ToUpper(want), false},
		"empty":                     {"u-1", "", false},
		"prefix":                    {"u-1", want[:63], false},
		"another's":                 {"u-1", tokens.Traffic("hullo", "u-1"), false},
		"of an earlier sandbox":     {"u-1", tokens.Traffic("hello", "u-0"), false},
		"envd's":                    {"u-1", tokens.Envd("hello", "u-1"), false},
		"a chosen name":             {"u-1", tokens.Envd("sandbox-traffic-hello", "u-1"), false},
		"no UID, as if it were one": {"", tokens.Traffic("hello", ""), false},
		"no UID, without a token":   {"", "", false},
	} {
		if got := tokens.ValidTraffic("hello", tc.uid, tc.token); got != tc.valid {
			t.Errorf("%s: valid = %v, want %v", name, got, tc.valid)
		}
	}
	if a, b := tokens.Envd("hello", "u-1"), tokens.Envd("hello", "u-2"); a == b {
		t.Error("two sandboxes of one ID have the same envd token")
	}
	if a, b := tokens.Envd("hello", ""), tokens.Envd("hello", ""); a == "" || a == b {
		t.Errorf("without a UID the envd token is %q, twice: %v", a, a == b)
	}
}

// A seed of another length is refused, and no token is valid before the seed is known.
func TestNoTokenWithoutASeed(t *testing.T) {
	for _, n := range []int{0, 31, 33} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: seedSecret}, Data: map[string][]byte{dataSeed: make([]byte, n)}}
		tokens := NewTokens(fake.NewClientBuilder().WithObjects(secret).Build(), "system")
		if err := tokens.Load(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("has %d bytes", n)) {
			t.Errorf("a seed of %d bytes: %v", n, err)
		}
		for _, token := range []string{"", "x", tokensOf(nil, 0).Traffic("a", "uid")} {
			if tokens.ValidTraffic("a", "uid", token) {
				t.Errorf("the token %q is valid", token)
			}
		}
		if tokens.Envd("a", "uid") == "" {
			t.Error("the envd token is empty")
		}
	}
}

// Many processes start at once: one seed.
func TestLoadTokens(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	got := make([]string, 8)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			tokens, err := LoadTokens(t.Context(), c, ns)
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = tokens.Traffic("hello", "u-1")
		})
	}
	wg.Wait()
	for _, token := range got {
		if token != got[0] {
			t.Fatalf("tokens differ: %v", got)
		}
	}
	var secret corev1.Secret
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: seedSecret}, &secret); err != nil {
		t.Fatal(err)
	}
	secret.Data[dataSeed] = []byte("known")
	if err := c.Update(t.Context(), &secret); err == nil {
		t.Error("the seed can be changed")
	}
}

// No seed is made while a sandbox runs that may have been told tokens of another.
func TestLoadTokensWhileSandboxesRun(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	load := func(want error, when string) {
		t.Helper()
		if _, err := LoadTokens(t.Context(), c, ns); !errors.Is(err, want) {
			t.Fatalf("%s: %v, want %v", when, err, want)
		}
		err := c.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: seedSecret}, &corev1.Secret{})
		if made := err == nil; made != (want == nil) {
			t.Fatalf("%s: the seed was made: %v (%v)", when, made, err)
		}
		if want == nil {
			if err := c.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: seedSecret}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	create := func(o client.Object) {
		t.Helper()
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Delete(context.Background(), o); err != nil {
				t.Error(err)
			}
		})
	}
	load(nil, "on a new cluster")
	claimed := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: kubetest.Name("claimed")}}
	claimed.Spec.Namespace, claimed.Spec.Pool = ns, "base"
	claimed.Spec.Binding = &v1alpha1.Binding{ClaimID: "c", PodName: "p", PodUID: "u"}
	waiting := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: kubetest.Name("waiting")}}
	waiting.Spec.Namespace, waiting.Spec.Pool = ns, "base"
	create(claimed)
	load(nil, "no pool runs sandboxd")
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "base"}}
	pool.Spec.Template = &v1alpha1.SandboxTemplateSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Image: "a", Ports: []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}}}},
	}}}
	create(pool)
	load(ErrSeedLost, "a sandbox is claimed")
	claimed.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndReleased, At: metav1.Now()}
	if err := c.Update(t.Context(), claimed); err != nil {
		t.Fatal(err)
	}
	create(waiting)
	load(nil, "one has ended, one was never claimed")
	// Paused: its users hold tokens, which must be good when it is resumed.
	at := metav1.Now()
	waiting.Status.StartedAt = &at
	if err := c.Status().Update(t.Context(), waiting); err != nil {
		t.Fatal(err)
	}
	load(ErrSeedLost, "one has run before")
}

// An operator replaces a leaked seed: a process that had read it goes on with it at no later join.
func TestSeedIsReplaced(t *testing.T) {
	scheme := kubetest.Scheme()
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "base"}}
	pool.Spec.Template = &v1alpha1.SandboxTemplateSpec{Runtimes: []v1alpha1.Runtime{v1alpha1.RuntimeSandboxd}}
	claimed := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "claimed"}}
	claimed.Spec.Binding = &v1alpha1.Binding{ClaimID: "c", PodName: "p", PodUID: "u"}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool).Build()
	first, err := LoadTokens(t.Context(), c, "system")
	if err != nil {
		t.Fatal(err)
	}
	leaked := first.Traffic("hello", "u-1")
	if err := errors.Join(first.Load(t.Context()), c.Create(t.Context(), claimed)); err != nil {
		t.Fatal(err)
	}
	if got := first.Traffic("hello", "u-1"); got != leaked {
		t.Errorf("another join: token %s, want %s", got, leaked)
	}
	if err := c.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: seedSecret}}); err != nil {
		t.Fatal(err)
	}
	if err := first.Load(t.Context()); !errors.Is(err, ErrSeedLost) {
		t.Errorf("a join without the Secret while a sandbox runs: %v", err)
	}
	if err := c.Delete(t.Context(), claimed); err != nil {
		t.Fatal(err)
	}
	second, err := LoadTokens(t.Context(), c, "system")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := first.Traffic("hello", "u-1"), second.Traffic("hello", "u-1"); got != want || got == leaked {
		t.Errorf("token %s, want %s, and not %s", got, want, leaked)
	}
}

// maxTrafficAllocs is what deriving a token takes: two HMAC states, two sums and
// three texts.
const maxTrafficAllocs = 9

func TestValidTrafficAllocations(t *testing.T) {
	tokens := tokensOf(nil, 7)
	token := tokens.Traffic("hello", "u-1")
	if n := testing.AllocsPerRun(100, func() { tokens.ValidTraffic("hello", "u-1", token) }); n > maxTrafficAllocs {
		t.Errorf("%v allocations, want at most %d", n, maxTrafficAllocs)
	}
}

func BenchmarkValidTraffic(b *testing.B) {
	tokens := tokensOf(nil, 7)
	token := tokens.Traffic("hello", "u-1")
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !tokens.ValidTraffic("hello", "u-1", token) {
				b.Fatal("refused")
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				tokens.ValidTraffic("hello", "u-1", token)
			}
		})
	})
}
