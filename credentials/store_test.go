package credentials

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

func TestStore(t *testing.T) {
	c, system := kubetest.Client(t), kubetest.Namespace(t)
	store := NewStore(c, system)
	a, b := kubetest.Namespace(t), kubetest.Namespace(t)
	key, created, err := store.Create(t.Context(), "team-a", a)
	if err != nil {
		t.Fatal(err)
	}
	if created.ID != key[4:12] || created.Team != "team-a" || created.Namespace != a || created.Created.IsZero() {
		t.Errorf("created %+v", created)
	}
	_, second, err := store.Create(t.Context(), "team-b", b)
	if err != nil {
		t.Fatal(err)
	}
	var secret corev1.Secret
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: system, Name: "api-key-" + created.ID}, &secret); err != nil {
		t.Fatal(err)
	}
	if len(secret.Annotations) > 0 || strings.Contains(secret.String(), key[12:]) {
		t.Errorf("the Secret has annotations or the key: %v", secret.Annotations)
	}

	keys, err := store.List(t.Context())
	if err != nil || len(keys) != 2 || !slices.Contains(keys, created) || !slices.Contains(keys, second) {
		t.Errorf("list %+v, %v; want %+v and %+v", keys, err, created, second)
	}
	if _, err := store.Revoke(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{created.ID, "", "xyz", "../../..", key} {
		if _, err := store.Revoke(t.Context(), id); !errors.Is(err, ErrKeyNotFound) {
			t.Errorf("revoking %q: %v, want ErrKeyNotFound", id, err)
		}
	}
	if _, err := store.Revoke(t.Context(), key); strings.Contains(err.Error(), key[12:]) {
		t.Error("the error repeats the key")
	}
	if keys, err := store.List(t.Context()); err != nil || !slices.Equal(keys, []Key{second}) {
		t.Errorf("list after the revocation %+v, %v", keys, err)
	}
}

func TestCreateRefuses(t *testing.T) {
	store := NewStore(kubetest.Client(t), "no-such-namespace")
	for _, tc := range []struct{ team, namespace, want string }{
		{"", "ns", "team"},
		{"a b", "ns", "team"},
		{strings.Repeat("a", 64), "ns", "team"},
		{"team", "", "namespace"},
		{"team", "A", "namespace"},
		{"team", "no-such-namespace", "reading the namespace"},
		{"team", "default", "storing an API key"},
	} {
		key, _, err := store.Create(t.Context(), tc.team, tc.namespace)
		if err == nil || key != "" || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("team %q, namespace %q: key %q, error %v", tc.team, tc.namespace, key, err)
		}
	}
}

// endNamespace deletes a namespace, as the namespace controller does, which does not run here.
func endNamespace(t *testing.T, clients *kubernetes.Clientset, name string) {
	t.Helper()
	namespaces := clients.CoreV1().Namespaces()
	if err := namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ns, err := namespaces.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ns.Spec.Finalizers = nil
	if _, err := namespaces.Finalize(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestVerifierFollowsTheStore(t *testing.T) {
	system := kubetest.Namespace(t)
	store := NewStore(kubetest.Client(t), system)
	ns := kubetest.Namespace(t)
	early, _, err := store.Create(t.Context(), "team", ns)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(kubetest.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	metrics := NewMetrics(prometheus.NewRegistry())
	v := NewVerifier(VerifierOptions{Secrets: clients.CoreV1().Secrets(system), Namespaces: clients.CoreV1().Namespaces(), Metrics: metrics})

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Verify(canceled, early); err == nil || errors.Is(err, routing.ErrBadKey) {
		t.Errorf("before the first list: %v, want an error that is not routing.ErrBadKey", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- v.Start(ctx) }()

	// Verify waits for the first list.
	if _, err := v.Verify(t.Context(), early); err != nil {
		t.Errorf("key from before the start: %v", err)
	}
	late, created, err := store.Create(t.Context(), "team", ns)
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "a new key is known", func() error {
		_, err := v.Verify(t.Context(), late)
		return err
	})
	if _, err := store.Revoke(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
	kubetest.Within(t, 5*time.Second, "a revoked key is refused", func() error {
		if _, err := v.Verify(t.Context(), late); !errors.Is(err, routing.ErrBadKey) {
			return errors.New("still accepted")
		}
		return nil
	})
	if _, err := v.Verify(t.Context(), early); err != nil {
		t.Errorf("the other key: %v", err)
	}
	endNamespace(t, clients, ns)
	refused := func() error {
		if _, err := v.Verify(t.Context(), early); !errors.Is(err, routing.ErrBadKey) {
			return errors.New("still accepted")
		}
		return nil
	}
	kubetest.Within(t, 5*time.Second, "the key of a namespace that is gone is refused", refused)
	if err := kubetest.Client(t).Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		t.Fatal(err)
	}
	again, _, err := store.Create(t.Context(), "team", ns)
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "a key of the new namespace of that name is known", func() error {
		_, err := v.Verify(t.Context(), again)
		return err
	})
	if err := refused(); err != nil {
		t.Errorf("in the new namespace the old key is %v", err)
	}
	if n := testutil.ToFloat64(metrics.verifications.WithLabelValues(outcomeUnknown)); n < 1 {
		t.Errorf("%v keys counted as unknown", n)
	}
	stop()
	if err := <-stopped; err != nil {
		t.Errorf("Start: %v", err)
	}
}
