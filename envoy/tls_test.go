package envoy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// selfSigned writes a certificate for *.e.localhost and its key.
func selfSigned(t testing.TB) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	writePair(t, dir, 1)
	return filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
}

// writePair writes a certificate with a serial number that is good for as many days, and
// its key, into a folder.
func writePair(t testing.TB, dir string, serial int64) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: []string{"*.e.localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Duration(serial)*24*time.Hour + time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// mount is the folder of a Secret, as a kubelet keeps it: the files are links into ..data,
// a link to a folder of the Secret's state, which is moved to the next one.
type mount string

func (m mount) write(t *testing.T, serial int64) {
	t.Helper()
	at := func(name string) string { return filepath.Join(string(m), name) }
	state := ".." + strconv.FormatInt(serial, 10)
	if err := os.Mkdir(at(state), 0o700); err != nil {
		t.Fatal(err)
	}
	writePair(t, at(state), serial)
	old, first := os.Readlink(at("..data"))
	err := errors.Join(os.Symlink(state, at("..data_tmp")), os.Rename(at("..data_tmp"), at("..data")))
	if first == nil {
		err = errors.Join(err, os.RemoveAll(at(old)))
	} else {
		err = errors.Join(err, os.Symlink("..data/tls.crt", at("tls.crt")), os.Symlink("..data/tls.key", at("tls.key")))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// serial is that of the certificate which a new connection is shown; 0 if there is none.
func (w *world) serial() (int64, error) {
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", strings.TrimPrefix(w.url, "http://"), insecure())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

func (w *world) waitForSerial(t *testing.T, want int64) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(20 * time.Second); ; {
		got, err := w.serial()
		if err != nil {
			t.Fatalf("new connections are refused: %v", err)
		}
		if got == want {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("Envoy shows the certificate %d, want %d", got, want)
		}
	}
}

// A Secret's new certificate is shown to new connections within seconds, each time, and
// none is refused meanwhile; connections that are open stay. Envoy's statistics say how
// long it is good for, which the alert goes by.
func TestCertificateIsReadAnew(t *testing.T) {
	t.Parallel()
	m := mount(t.TempDir())
	m.write(t, 100)
	w := startWorld(t, Options{CertFile: filepath.Join(string(m), "tls.crt"), KeyFile: filepath.Join(string(m), "tls.key")}, true)
	w.waitForSerial(t, 100)
	open, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "http://"), insecure())
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, serial := range []int64{5, 40} {
		m.write(t, serial)
		w.waitForSerial(t, serial)
		if got := w.daysLeft(t, serial); got != serial {
			t.Errorf("Envoy's statistics say %d days, want %d", got, serial)
		}
	}
	if _, err := io.WriteString(open, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(open); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		t.Errorf("a connection from before got %q, %v", answer, err)
	}
}

var daysFigure = regexp.MustCompile(`(?m)^envoy_server_days_until_first_cert_expiring\{\} (\d+)$`)

// daysLeft is Envoy's figure, which it renews every few seconds; it waits for the one that
// is wanted.
func (w *world) daysLeft(t *testing.T, want int64) (got int64) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(20 * time.Second); ; {
		text, err := w.admin.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m := daysFigure.FindStringSubmatch(text); m != nil {
			if got, _ = strconv.ParseInt(m[1], 10, 64); got == want {
				return got
			}
		}
		select {
		case <-tick.C:
		case <-end:
			return got
		}
	}
}

// A certificate that is not its key's is refused before Envoy starts, which would start
// and answer no client.
func TestCertificateOfAnotherKey(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	other, _ := selfSigned(t)
	text, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cert, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if path, _, err := Certificate(Options{RunDir: t.TempDir(), CertFile: cert, KeyFile: key}); err == nil {
		t.Errorf("%s for a certificate of another key", path)
	}
}
