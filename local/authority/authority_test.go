package authority

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/credentials/certificate"
)

const domain = "sandlane.localhost"

func ensure(t *testing.T, dir string, now time.Time, wantFresh bool) *Authority {
	t.Helper()
	a, fresh, err := Ensure(dir, domain, now)
	if err != nil || fresh != wantFresh {
		t.Fatalf("Ensure: fresh %v, %v; want fresh %v", fresh, err, wantFresh)
	}
	return a
}

// contents are the files of a folder.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(text)
	}
	return all
}

func TestCertificate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	dir := filepath.Join(t.TempDir(), domain)
	a := ensure(t, dir, now, true)
	cert, key, err := a.Certificate(now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	trust := x509.NewCertPool()
	if text := contents(t, dir)[certFile]; !trust.AppendCertsFromPEM([]byte(text)) {
		t.Fatal(text)
	}
	verify := func(name string, at time.Time) error {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: trust, DNSName: name, CurrentTime: at})
		return err
	}
	for name, good := range map[string]bool{
		domain: true, "api." + domain: true, "8000-x." + domain: true, "localhost": true, "127.0.0.1": true,
		"a.b." + domain: false, "x.localhost": false, "example.com": false, "127.0.0.2": false,
	} {
		if err := verify(name, now); (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
	for at, good := range map[time.Duration]bool{-30 * time.Minute: true, -2 * time.Hour: false, 396 * 24 * time.Hour: true, 398 * 24 * time.Hour: false} {
		if err := verify(domain, now.Add(at)); (err == nil) != good {
			t.Errorf("after %v: %v", at, err)
		}
	}
}

// The key, if it is stolen, vouches for no names but the domain's.
func TestVouchesForNothingElse(t *testing.T) {
	t.Parallel()
	now := time.Now()
	const domain = "sandlane.test"
	a, err := newAuthority(domain, now)
	if err != nil {
		t.Fatal(err)
	}
	trust := x509.NewCertPool()
	trust.AddCert(a.Cert)
	for name, good := range map[string]bool{"deep.below." + domain: true, "example.com": false, "x" + domain: false, "test": false} {
		leaf, err := certificate.New(&x509.Certificate{
			DNSNames: []string{name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}, a.Pair)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leaf.Cert.Verify(x509.VerifyOptions{Roots: trust, DNSName: name, CurrentTime: now}); (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeptAndRenewed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls", domain)
	now := time.Now()
	ensure(t, dir, now, true)
	first := contents(t, dir)
	if st, err := os.Stat(filepath.Join(dir, keyFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", st.Mode(), err)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", st.Mode(), err)
	}
	last := now.Add(Life - CertificateLife - time.Minute)
	ensure(t, dir, last, false)
	if !maps.Equal(first, contents(t, dir)) {
		t.Error("an authority that is valid was changed")
	}
	ensure(t, dir, last.Add(2*time.Minute), true)
	if second := contents(t, dir); second[certFile] == first[certFile] || second[keyFile] == first[keyFile] || len(second) != 2 {
		t.Error("an authority that ends before the certificates was kept")
	}
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v; want no key of the old one to be left", entries, err)
	}
	ensure(t, dir, now, true) // that one is of later
	ensure(t, dir, now, false)
}

// What a start left that was cut short does not matter to the next.
func TestCutShort(t *testing.T) {
	t.Parallel()
	now := time.Now()
	dir := filepath.Join(t.TempDir(), domain)
	for _, what := range []string{"new", "old"} {
		if err := os.MkdirAll(filepath.Join(beside(dir, what), "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ensure(t, dir, now, true)
	before := contents(t, dir)
	if err := os.MkdirAll(beside(dir, "new"), 0o700); err != nil {
		t.Fatal(err)
	}
	ensure(t, dir, now, false)
	if !maps.Equal(before, contents(t, dir)) {
		t.Error("the authority changed")
	}
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v; want the folder alone", entries, err)
	}
}

// What is not ours is refused, and stays as it is.
func TestForeign(t *testing.T) {
	t.Parallel()
	now := time.Now()
	other, err := newAuthority("other.example", now)
	if err != nil {
		t.Fatal(err)
	}
	otherCert, otherKey, err := other.PEM()
	if err != nil {
		t.Fatal(err)
	}
	stranger := *other.Cert
	stranger.RawSubject, stranger.Subject.CommonName = nil, "Somebody's authority"
	stranger.PublicKey = nil
	stranger.PermittedDNSDomains = permitted(domain)
	strange, err := certificate.New(&stranger, nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte, mode os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.WriteFile(path, text, mode), os.Chmod(path, mode)); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		spoil func(*testing.T, string)
		why   string
	}{
		"no key":             {remove(keyFile), "lacks"},
		"no certificate":     {remove(certFile), "lacks"},
		"something else":     {write("notes.txt", nil, 0o600), "notes.txt"},
		"another's":          {write(certFile, certificate.PEM(strange.Cert), 0o644), "Somebody's"},
		"of another domain":  {write(certFile, otherCert, 0o644), "other names"},
		"another key":        {write(keyFile, otherKey, 0o600), "not the key"},
		"no PEM":             {write(certFile, []byte("hello"), 0o644), "no certificate"},
		"no certificate PEM": {write(certFile, otherKey, 0o644), "no certificate"},
		"no key PEM":         {write(keyFile, []byte("hello"), 0o600), "no key"},
		"readable key":       {func(t *testing.T, dir string) { write(keyFile, []byte(contents(t, dir)[keyFile]), 0o640)(t, dir) }, "others can read"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), domain)
			ensure(t, dir, now, true)
			tc.spoil(t, dir)
			before := contents(t, dir)
			var foreign *ForeignError
			_, _, err := Ensure(dir, domain, now.Add(2*Life)) // also when it is over
			if !errors.As(err, &foreign) || !strings.Contains(foreign.Why, tc.why) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Ensure: %v, want %q", err, tc.why)
			}
			if !maps.Equal(before, contents(t, dir)) {
				t.Error("it was changed")
			}
		})
	}
}
