package keys

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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

// A rotation loses nothing: what was sealed before it opens, and sandboxes of before trust what
// processes sign that have started since, and the other way round. One that is cut off is
// completed, not begun again.
func TestRotate(t *testing.T) {
	broken := false
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if _, is := o.(*corev1.ConfigMap); is && broken {
				return errors.New("cut off")
			}
			return c.Update(ctx, o, opts...)
		},
	}).Build()
	place := seal.OfSecret("team", "key")
	read := func() (*Keys, *Public) {
		t.Helper()
		own, err := Load(t.Context(), c, system)
		if err != nil {
			t.Fatal(err)
		}
		public, err := ReadPublic(t.Context(), c, system)
		if err != nil {
			t.Fatal(err)
		}
		return own, public
	}
	check := func(what string, own *Keys, public *Public) {
		t.Helper()
		sealed, err := public.Seal.Seal(place, []byte("value"))
		if err != nil {
			t.Fatal(err)
		}
		if value, err := own.Opener.Open(place, sealed); err != nil || string(value) != "value" {
			t.Errorf("%s: %q, %v", what, value, err)
		}
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(public.Authority)
		if _, err := own.Authority.Cert.Verify(x509.VerifyOptions{Roots: trusted, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	own, public := read()
	first, before := own, public
	for n := range 3 {
		broken = n == 1
		err := Rotate(t.Context(), c, system)
		if broken {
			broken = false
			if err == nil {
				t.Error("a rotation that was cut off is said to be done")
			}
			if _, still := read(); string(still.Authority) != string(public.Authority) {
				t.Error("it is published")
			}
			err = Rotate(t.Context(), c, system)
		}
		if err != nil {
			t.Fatal(err)
		}
		next, published := read()
		if next.Authority.Cert.Equal(own.Authority.Cert) {
			t.Error("the authority is the same")
		}
		check("a process from before", own, published)
		check("a process from after", next, public)
		check("both from after", next, published)
		own, public = next, published
	}
	sealed, err := before.Seal.Seal(place, []byte("value"))
	if err != nil {
		t.Fatal(err)
	}
	if value, err := own.Opener.Open(place, sealed); err != nil || string(value) != "value" {
		t.Errorf("what was sealed before three rotations: %q, %v", value, err)
	}
	if own.Authority.Cert.Equal(first.Authority.Cert) {
		t.Error("the first authority is back")
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
