package issuer

import (
	"context"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const ns = "sandlane-system"

type fixture struct {
	*Issuer
	now time.Time
}

func newFixture() *fixture {
	f := &fixture{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	f.Issuer = &Issuer{
		Client: fake.NewClientBuilder().Build(), Namespace: ns, Gateway: "gateway", Controller: "controller",
		Now: func() time.Time { return f.now },
	}
	return f
}

func (f *fixture) ensure(t *testing.T, want ...string) {
	t.Helper()
	wrote, err := f.Ensure(t.Context())
	if err != nil || !slices.Equal(wrote, want) {
		t.Fatalf("Ensure wrote %v, %v; want %v", wrote, err, want)
	}
}

// Egress processes have a certificate of their own where there are some, by the authority
// that is there, and of a name that is no gateway's.
func TestEgressCertificate(t *testing.T) {
	f := newFixture()
	f.ensure(t, AuthoritySecret, GatewaySecret, ControllerSecret)
	f.Egress = "egress"
	f.ensure(t, EgressSecret)
	f.ensure(t)
	s := f.secret(t, EgressSecret)
	pair, err := decodePair(s.Data[KeyCert], s.Data[KeyPrivate])
	if err != nil || !slices.Equal(pair.Cert.DNSNames, []string{"egress"}) || !slices.Equal(pair.Cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
		t.Errorf("%v, %+v", err, pair)
	}
}

func (f *fixture) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := f.Client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: name}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (f *fixture) delete(t *testing.T, name string) {
	t.Helper()
	if err := f.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}); err != nil {
		t.Fatal(err)
	}
}

// Each side's certificate is the authority's, for its name and use alone.
func TestEnsureMakesAllOnce(t *testing.T) {
	f := newFixture()
	f.ensure(t, AuthoritySecret, GatewaySecret, ControllerSecret)
	f.ensure(t)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(f.secret(t, GatewaySecret).Data[KeyCA]) {
		t.Fatal("no authority beside the gateway's certificate")
	}
	for name, use := range map[string]x509.ExtKeyUsage{GatewaySecret: x509.ExtKeyUsageServerAuth, ControllerSecret: x509.ExtKeyUsageClientAuth} {
		data := f.secret(t, name).Data
		pair, err := decodePair(data[KeyCert], data[KeyPrivate])
		if err != nil {
			t.Fatal(err)
		}
		identity := strings.TrimPrefix(name, "sandlane-control-")
		if _, err := pair.Cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: identity, KeyUsages: []x509.ExtKeyUsage{use}, CurrentTime: f.now}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if keys := slices.Sorted(maps.Keys(data)); !slices.Equal(keys, []string{KeyCA, KeyCert, KeyPrivate}) {
			t.Errorf("%s has %v: the authority's key must not be there", name, keys)
		}
	}
}

// A certificate is made anew in the last third of its life, by the same authority.
func TestEnsureRenewsLeavesAndKeepsTheAuthority(t *testing.T) {
	f := newFixture()
	f.ensure(t, AuthoritySecret, GatewaySecret, ControllerSecret)
	authority := f.secret(t, AuthoritySecret).Data
	f.now = f.now.Add(leafLife*2/3 - time.Hour)
	f.ensure(t)
	f.now = f.now.Add(time.Hour)
	f.ensure(t, GatewaySecret, ControllerSecret)
	f.delete(t, ControllerSecret)
	f.ensure(t, ControllerSecret)
	f.Controller = "another"
	f.ensure(t, ControllerSecret)
	if !maps.EqualFunc(authority, f.secret(t, AuthoritySecret).Data, slices.Equal) {
		t.Error("the authority has changed")
	}
}

// An authority that is gone or broken is not replaced under running gateways.
func TestEnsureMakesNoSecondAuthority(t *testing.T) {
	f := newFixture()
	f.ensure(t, AuthoritySecret, GatewaySecret, ControllerSecret)
	s := f.secret(t, AuthoritySecret)
	s.Data[KeyPrivate] = []byte("a secret")
	if err := f.Client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if wrote, err := f.Ensure(t.Context()); err == nil || strings.Contains(err.Error(), "a secret") || len(wrote) > 0 {
		t.Errorf("with a broken key Ensure wrote %v, %v", wrote, err)
	}
	f.delete(t, AuthoritySecret)
	if wrote, err := f.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "restore it") || len(wrote) > 0 {
		t.Errorf("without the authority Ensure wrote %v, %v", wrote, err)
	}
	f.delete(t, GatewaySecret)
	f.delete(t, ControllerSecret)
	f.ensure(t, AuthoritySecret, GatewaySecret, ControllerSecret)
	f.now = f.now.Add(authorityLife)
	if _, err := f.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "run out") {
		t.Errorf("with an authority that has run out: %v", err)
	}
}

// One that finds no authority, and then a certificate that another has made since, has
// nothing to do.
func TestEnsureBesideAnother(t *testing.T) {
	f := newFixture()
	i := *f.Issuer
	var once sync.Once
	i.Client = interceptor.NewClient(f.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if key.Name == GatewaySecret {
				once.Do(func() { f.ensure(t, AuthoritySecret, GatewaySecret, ControllerSecret) })
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	if wrote, err := i.Ensure(t.Context()); err != nil || len(wrote) > 0 {
		t.Errorf("wrote %v, %v", wrote, err)
	}
}

// Of several at a time one makes each Secret, and all end well.
func TestEnsureTogether(t *testing.T) {
	f := newFixture()
	const many = 4
	wrote, errs := make(chan []string, many), make(chan error, many)
	for range many {
		i := *f.Issuer
		go func() {
			w, err := i.Ensure(t.Context())
			wrote <- w
			errs <- err
		}()
	}
	var all []string
	for range many {
		all = append(all, <-wrote...)
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if slices.Sort(all); !slices.Equal(all, []string{AuthoritySecret, ControllerSecret, GatewaySecret}) {
		t.Errorf("written: %v, want each Secret once", all)
	}
}
