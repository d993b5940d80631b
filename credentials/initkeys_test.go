package credentials

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// verifies reports whether the public key is that of what keys sign with its ID.
func verifies(t *testing.T, keys *InitKeys, key InitKey) bool {
	t.Helper()
	public, err := base64.StdEncoding.DecodeString(key.Public)
	if err != nil {
		t.Fatal(err)
	}
	signature, ok := keys.Sign(key.ID, []byte("message"))
	return ok && ed25519.Verify(public, []byte("message"), signature)
}

// Many processes start at once: one pair of keys, and the published one is theirs.
func TestLoadInitKeys(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	if _, err := ReadInitKey(t.Context(), c, ns); err == nil {
		t.Error("there is a key before the first gateway")
	}
	got := make([]*InitKeys, 8)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			var err error
			if got[i], err = LoadInitKeys(t.Context(), c, ns); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	published, err := ReadInitKey(t.Context(), c, ns)
	if err != nil {
		t.Fatal(err)
	}
	for i, keys := range got {
		if keys.Current() != published || !verifies(t, keys, published) {
			t.Errorf("%d: %+v is current, %+v is published", i, keys.Current(), published)
		}
	}
	if _, ok := got[0].Sign("another", nil); ok {
		t.Error("a key that is not there signs")
	}
	var m corev1.ConfigMap
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: initKeysName}, &m); err != nil || len(m.Data) != 4 {
		t.Errorf("the ConfigMap holds %v, %v", m.Data, err)
	}
	for name, text := range m.Data {
		for id, key := range got[0].keys {
			if text == base64.StdEncoding.EncodeToString(key.Seed()) || text == string(key.Seed()) {
				t.Errorf("%s of the ConfigMap is the private key %s", name, id)
			}
		}
	}
}

// A rotation ends no warm stock: what a pod carries can be signed for as long as the
// pod is there, and by gateways that started before the rotation with the new key too.
func TestRotateInitKeys(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	before, err := LoadInitKeys(t.Context(), c, ns)
	if err != nil {
		t.Fatal(err)
	}
	warm := before.Current()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "warm", Labels: map[string]string{v1alpha1.LabelInitKey: warm.ID}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "a"}}},
	}
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	after, replaced := before, []InitKey{}
	for n := range 3 {
		replaced = append(replaced, after.Current())
		want := after.Next()
		if after, _, err = RotateInitKeys(t.Context(), c, ns); err != nil {
			t.Fatal(err)
		}
		published, err := ReadInitKey(t.Context(), c, ns)
		if err != nil || published != want || after.Current() != want {
			t.Fatalf("rotation %d: %+v is published, %v, want %+v", n, published, err, want)
		}
		if n == 0 && !verifies(t, before, published) {
			t.Error("a gateway that started before the rotation cannot sign for new pods")
		}
		if !verifies(t, after, warm) {
			t.Errorf("after rotation %d nobody can sign for the warm pod", n+1)
		}
		if last := replaced[n]; !verifies(t, after, last) {
			t.Errorf("rotation %d: the key that was current until now is gone", n)
		}
	}
	if _, ok := after.Sign(replaced[1].ID, nil); ok || len(after.keys) != 4 {
		t.Errorf("%d keys are left, among them the one of before: %v", len(after.keys), ok)
	}
	loaded, err := LoadInitKeys(t.Context(), c, ns)
	if err != nil || loaded.Current() != after.Current() || loaded.Next() != after.Next() {
		t.Errorf("a gateway that starts now has %+v, %v", loaded, err)
	}
	if err := c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if after, _, err = RotateInitKeys(t.Context(), c, ns); err != nil {
		t.Fatal(err)
	}
	if _, ok := after.Sign(warm.ID, nil); ok || len(after.keys) != 3 {
		t.Errorf("%d keys are left; that of the pod that is gone signs: %v", len(after.keys), ok)
	}
}

// A process that died between the two writes of a rotation leaves new pods a key that
// gateways have, and the next rotation works. A lost Secret is not replaced.
func TestHalfARotation(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	keys, err := LoadInitKeys(t.Context(), c, ns)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: initKeysName}, secret); err != nil {
		t.Fatal(err)
	}
	rotated := keys.rotated(nil)
	secret.Data = rotated.secretData()
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if published, err := ReadInitKey(t.Context(), c, ns); err != nil || !verifies(t, rotated, published) {
		t.Errorf("pods get a key that nobody signs with: %+v, %v", published, err)
	}
	if rotated, _, err = RotateInitKeys(t.Context(), c, ns); err != nil {
		t.Fatal(err)
	}
	if published, err := ReadInitKey(t.Context(), c, ns); err != nil || published != rotated.Current() {
		t.Errorf("%+v is published, %v, want %+v", published, err, rotated.Current())
	}
	if err := c.Delete(context.WithoutCancel(t.Context()), secret); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadInitKeys(t.Context(), c, ns); !errors.Is(err, ErrInitKeysLost) {
		t.Errorf("without the Secret: %v", err)
	}
}

// A rotation that fails again and again before it has published leaves new pods a key that
// gateways have, and the run that succeeds finishes that one rotation.
func TestRotationThatIsRepeated(t *testing.T) {
	failures := 2
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if _, public := o.(*corev1.ConfigMap); public && failures > 0 {
				failures--
				return errors.New("away")
			}
			return c.Update(ctx, o, opts...)
		},
	})
	before, err := LoadInitKeys(t.Context(), c, "system")
	if err != nil {
		t.Fatal(err)
	}
	for run, fails := range []bool{true, true, false} {
		if _, begun, err := RotateInitKeys(t.Context(), c, "system"); (err != nil) != fails || begun {
			t.Fatalf("run %d: %v, and has begun a rotation: %v", run, err, begun)
		}
		published, err := ReadInitKey(t.Context(), c, "system")
		if err != nil {
			t.Fatal(err)
		}
		keys, err := LoadInitKeys(t.Context(), c, "system")
		if err != nil {
			t.Fatal(err)
		}
		if !verifies(t, keys, published) || keys.Current() != before.Next() {
			t.Errorf("run %d: gateways have the current key %+v, new pods %+v: signed for: %v", run, keys.Current(), published, verifies(t, keys, published))
		}
		want := before.Current()
		if !fails {
			want = before.Next()
		}
		if published != want {
			t.Errorf("run %d: %+v is published, want %+v", run, published, want)
		}
	}
}

// A run that was held up cannot publish a key that others have dropped meanwhile.
func TestRotationIsOvertaken(t *testing.T) {
	api := fake.NewClientBuilder().Build()
	first, err := LoadInitKeys(t.Context(), api, "system")
	if err != nil {
		t.Fatal(err)
	}
	late := interceptor.NewClient(api, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if _, public := o.(*corev1.ConfigMap); public {
				for range 3 { // the first finishes the rotation of the one that is late
					if _, _, err := RotateInitKeys(ctx, api, "system"); err != nil {
						t.Error(err)
					}
				}
			}
			return c.Update(ctx, o, opts...)
		},
	})
	if _, _, err := RotateInitKeys(t.Context(), late, "system"); !apierrors.IsConflict(err) {
		t.Errorf("the one that is late: %v", err)
	}
	published, err := ReadInitKey(t.Context(), api, "system")
	if err != nil || published == first.Next() {
		t.Errorf("%+v is published, %v", published, err)
	}
	keys, err := LoadInitKeys(t.Context(), api, "system")
	if err != nil {
		t.Fatal(err)
	}
	if keys.Current() != published {
		t.Errorf("gateways have the current key %+v, and %+v is published", keys.Current(), published)
	}
}
