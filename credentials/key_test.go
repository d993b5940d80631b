package credentials

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

func secretOf(key, team, namespace string) *corev1.Secret {
	id, _ := keyID(key)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:   secretPrefix + id,
			Labels: map[string]string{v1alpha1.LabelAPIKey: id, v1alpha1.LabelTeam: team},

			OwnerReferences: []metav1.OwnerReference{owner(namespaceOf(namespace))},
		},
		Data: secretData(key, namespace),
	}
}

// namespaceOf is the namespace that keys of secretOf belong to.
func namespaceOf(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name)}}
}

// knowing returns a verifier that knows a key of the namespace ns.
func knowing(key string) *Verifier {
	v := NewVerifier(VerifierOptions{})
	v.keys.Replace([]any{secretOf(key, "team", "ns")}, "1")
	v.namespaces.Replace([]any{namespaceOf("ns")}, "1")
	return v
}

// A key belongs to its namespace, and not to a later one of that name.
func TestKeyEndsWithItsNamespace(t *testing.T) {
	key := newKey()
	v := knowing(key)
	if _, err := v.Verify(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	v.namespaces.Delete(namespaceOf("ns"))
	if got, err := v.Verify(t.Context(), key); !errors.Is(err, routing.ErrBadKey) {
		t.Errorf("without the namespace: %+v, %v", got, err)
	}
	again := namespaceOf("ns")
	again.UID = "another"
	v.namespaces.Add(again)
	if got, err := v.Verify(t.Context(), key); !errors.Is(err, routing.ErrBadKey) {
		t.Errorf("in another namespace of its name: %+v, %v", got, err)
	}
}

func TestNewKey(t *testing.T) {
	// The form that E2B's SDKs check for.
	form := regexp.MustCompile(`^e2b_[0-9a-f]{40}$`)
	seen := map[string]bool{}
	for range 100 {
		key := newKey()
		if !form.MatchString(key) || seen[key] {
			t.Fatalf("key %q: malformed or seen before", key)
		}
		seen[key] = true
		if id, ok := keyID(key); !ok || id != key[4:12] {
			t.Errorf("ID of %q is %q, %v", key, id, ok)
		}
	}
}

func TestKeyIDMalformed(t *testing.T) {
	good := newKey()
	for _, key := range []string{
		"", "e2b_", good[4:], good + "0", good[:len(good)-1], "E2B_" + good[4:], "sk__" + good[4:],
		strings.ToUpper(good), good[:20] + "g" + good[21:], good[:20] + "\x00" + good[21:], " " + good[:len(good)-1],
	} {
		if id, ok := keyID(key); ok {
			t.Errorf("%q: taken as a key with ID %q", key, id)
		}
	}
}

func TestSecretHoldsNoKey(t *testing.T) {
	key := newKey()
	a, b := secretData(key, "ns"), secretData(key, "ns")
	if string(a[dataHash]) == string(b[dataHash]) {
		t.Error("two Secrets of one key have the same hash: the salt has no effect")
	}
	for name, value := range a {
		if strings.Contains(string(value), key[12:]) {
			t.Errorf("%s holds the key", name)
		}
	}
}

func TestVerify(t *testing.T) {
	key, other := newKey(), newKey()
	wrong := key[:12] + other[12:] // the ID of key, the secret part of another
	v := NewVerifier(VerifierOptions{})
	if v.Synced() {
		t.Error("synced before the first list")
	}
	if err := v.keys.Replace([]any{secretOf(key, "team", "ns")}, "1"); err != nil {
		t.Fatal(err)
	}
	if v.Synced() {
		t.Error("synced before the first list of namespaces")
	}
	if err := v.namespaces.Replace([]any{namespaceOf("ns")}, "1"); err != nil {
		t.Fatal(err)
	}
	if !v.Synced() {
		t.Error("not synced after the first list")
	}
	got, err := v.Verify(t.Context(), key)
	if want := (routing.KeyOwner{Team: "team", Namespace: "ns", KeyID: key[4:12], NamespaceUID: "uid of ns"}); err != nil || got != want {
		t.Errorf("valid key: %+v, %v; want %+v", got, err, want)
	}
	for name, key := range map[string]string{"unknown": other, "wrong": wrong, "malformed": key + "0", "empty": ""} {
		if got, err := v.Verify(t.Context(), key); !errors.Is(err, routing.ErrBadKey) || got != (routing.KeyOwner{}) {
			t.Errorf("%s key: %+v, %v; want routing.ErrBadKey", name, got, err)
		}
	}
}

func TestKeyringFollowsTheWatch(t *testing.T) {
	k := newKeyring(slog.New(slog.DiscardHandler))
	a, b := newKey(), newKey()
	ida, idb := a[4:12], b[4:12]
	k.Add(secretOf(a, "team", "ns"))
	k.Add(secretOf(b, "team", "ns"))
	k.Delete(secretOf(a, "team", "ns"))
	if k.get(ida) != nil || k.get(idb) == nil {
		t.Error("after deleting a: a is there or b is not")
	}
	k.Add(secretOf(a, "team", "ns"))
	relabelled := secretOf(a, "team", "ns")
	relabelled.Labels[v1alpha1.LabelAPIKey] = idb
	k.Update(relabelled)
	if k.get(ida) != nil || k.get(idb) == nil {
		t.Error("after labelling a as b: a still verifies, or b does not")
	}
	k.Replace([]any{secretOf(a, "team", "ns")}, "2")
	if k.get(ida) == nil || k.get(idb) != nil {
		t.Error("after a list of a alone: a is not there or b is")
	}
	if err := k.Resync(); err != nil {
		t.Error(err)
	}
}

func TestBrokenSecrets(t *testing.T) {
	for name, breakIt := range map[string]func(*corev1.Secret){
		"no label":       func(s *corev1.Secret) { s.Labels[v1alpha1.LabelAPIKey] = "" },
		"another name":   func(s *corev1.Secret) { s.Name = "api-key-00000000" },
		"no team":        func(s *corev1.Secret) { delete(s.Labels, v1alpha1.LabelTeam) },
		"no namespace":   func(s *corev1.Secret) { delete(s.Data, dataNamespace) },
		"no owner":       func(s *corev1.Secret) { s.OwnerReferences = nil },
		"another owner":  func(s *corev1.Secret) { s.OwnerReferences[0].Name = "other" },
		"another kind":   func(s *corev1.Secret) { s.OwnerReferences[0].Kind = "ConfigMap" },
		"no UID":         func(s *corev1.Secret) { s.OwnerReferences[0].UID = "" },
		"no salt":        func(s *corev1.Secret) { delete(s.Data, dataSalt) },
		"short hash":     func(s *corev1.Secret) { s.Data[dataHash] = s.Data[dataHash][:31] },
		"long hash":      func(s *corev1.Secret) { s.Data[dataHash] = append(s.Data[dataHash], 0) },
		"nothing inside": func(s *corev1.Secret) { s.Data = nil },
	} {
		s := secretOf(newKey(), "team", "ns")
		breakIt(s)
		if r, err := recordOf(s); err == nil {
			t.Errorf("%s: read as %+v", name, r)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	key := newKey()
	v := knowing(key)
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := v.Verify(b.Context(), key); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := v.Verify(b.Context(), key); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

func TestVerifyAllocations(t *testing.T) {
	key := newKey()
	v := knowing(key)
	if n := testing.AllocsPerRun(100, func() { v.Verify(t.Context(), key) }); n > 2 {
		t.Errorf("%v allocations, want at most 2", n)
	}
}

// After a restore of etcd a watch is silent: what is there is known from a new list.
func TestRelistReadsTheKeysAnew(t *testing.T) {
	secrets := fake.NewClientset(namespaceOf("ns"))
	secrets.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		if a.(clienttesting.WatchActionImpl).ListOptions.SendInitialEvents != nil {
			return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
		}
		return true, watch.NewFake(), nil
	})
	v := NewVerifier(VerifierOptions{Secrets: secrets.CoreV1().Secrets("system"), Namespaces: secrets.CoreV1().Namespaces()})
	v.Relist() // does nothing yet
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	stopped := make(chan error)
	go func() { stopped <- v.Start(ctx) }()
	if err := v.WaitSynced(ctx); err != nil {
		t.Fatal(err)
	}
	key := newKey()
	if _, err := secrets.CoreV1().Secrets("system").Create(ctx, secretOf(key, "team", "ns"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(ctx, key); !errors.Is(err, routing.ErrBadKey) {
		t.Errorf("before: %v", err)
	}
	v.Relist()
	kubetest.Eventually(t, "the new key is known", func() error {
		_, err := v.Verify(ctx, key)
		return err
	})
	stop()
	if err := <-stopped; err != nil {
		t.Errorf("Start: %v", err)
	}
}
