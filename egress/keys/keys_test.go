package keys

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/egress/seal"
)

const system = "sandlane-system"

// The first process makes the keys, the next one has the same, and what is sealed to the
// public one opens with both.
func TestLoad(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	if _, err := ReadPublic(t.Context(), c, system); !errors.Is(err, ErrNone) {
		t.Errorf("before the first process: %v", err)
	}
	first, err := Load(t.Context(), c, system)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ReadPublic(t.Context(), c, system)
	if err != nil {
		t.Fatal(err)
	}
	place := seal.OfSandbox("team", "s")
	sealed, err := public.Seal.Seal(place, []byte("value"))
	if err != nil {
		t.Fatal(err)
	}
	next, err := Load(t.Context(), c, system)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []*Keys{first, next} {
		if value, err := k.Opener.Open(place, sealed); err != nil || string(value) != "value" {
			t.Errorf("%q, %v", value, err)
		}
		if !k.Authority.Cert.Equal(first.Authority.Cert) || !k.Authority.Cert.IsCA {
			t.Error("another authority")
		}
	}
	if m := get[*corev1.ConfigMap](t, c); strings.Contains(m.String(), "PRIVATE") || len(m.BinaryData) != 1 || len(m.Data) != 1 {
		t.Errorf("published: %v", m)
	}
}

// A process that died between its two writes is made up for; keys that are lost are not
// replaced while others may be in use.
func TestLoadAfterALoss(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	if _, err := Load(t.Context(), c, system); err != nil {
		t.Fatal(err)
	}
	was := get[*corev1.ConfigMap](t, c)
	if err := c.Delete(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), c, system); err != nil {
		t.Fatal(err)
	}
	if is := get[*corev1.ConfigMap](t, c); string(is.BinaryData[dataSeal]) != string(was.BinaryData[dataSeal]) {
		t.Error("another key was published")
	}
	if err := c.Delete(t.Context(), get[*corev1.Secret](t, c)); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), c, system); !errors.Is(err, ErrLost) {
		t.Errorf("without the Secret: %v", err)
	}
}

func get[T client.Object](t *testing.T, c client.Client) T {
	t.Helper()
	var o T
	switch p := any(&o).(type) {
	case **corev1.Secret:
		*p = &corev1.Secret{}
	case **corev1.ConfigMap:
		*p = &corev1.ConfigMap{}
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: system, Name: name}, o); err != nil {
		t.Fatal(err)
	}
	return o
}
