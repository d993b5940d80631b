package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/egress/names"
)

// A connection to a host without a rule is passed on as it is: the client sees the host's
// own certificate. One with a rule has a certificate for that name alone.
func TestCertificates(t *testing.T) {
	w := newWorld(t, nil)
	w.claim(t, 1, "c1", ruled(secretValue))
	for host, issuer := range map[string]string{"api.example": "internet", "ruled.example": "egress"} {
		c, err := w.secure(t, 1, host)
		if err != nil {
			t.Fatal(err)
		}
		leaf := c.ConnectionState().PeerCertificates[0]
		if leaf.Issuer.CommonName != issuer {
			t.Errorf("%s has a certificate by %s", host, leaf.Issuer)
		}
		if issuer == "egress" && !slices.Equal(leaf.DNSNames, []string{host}) {
			t.Errorf("%s has a certificate for %v", host, leaf.DNSNames)
		}
		if got := answer(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\nAuthorization: mine\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("%s: %s", host, got)
		}
	}
	for _, r := range w.asked() {
		if got := r.Header.Get("Authorization"); got != map[string]string{"api.example": "mine", "ruled.example": secretValue}[r.Host] {
			t.Errorf("%s was asked with %q", r.Host, got)
		}
	}
}

// What is refused ends with an alert, and reaches nothing.
func TestRefusedConnections(t *testing.T) {
	w := newWorld(t, nil)
	r := ruled(secretValue)
	r.AllowNames = append(r.AllowNames, "*.wild.example", "closed.example")
	w.addrs["closed.example"], w.addrs["x.wild.example"] = "169.254.169.254", "203.0.113.1"
	w.claim(t, 1, "c1", r)
	for name, want := range map[string]string{
		"other.example":  "access denied", // a rule opens nothing
		"example":        "access denied",
		"wild.example":   "access denied",
		"closed.example": "access denied",
		"x.wild.example": "access denied",
		"127.0.0.1":      "unrecognized name", // no server name is sent for an address
	} {
		if _, err := w.secure(t, 1, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bytes := range []string{"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n", "SSH-2.0-OpenSSH_9\r\n", "\x16\x03\x01\x00\x00"} {
		if got := answer(dialFrom(t, 1, w.o.Listeners.HTTPS), bytes); strings.Contains(got, "200") {
			t.Errorf("%q: %q", bytes, got)
		}
	}
	if asked := w.asked(); len(asked) > 0 {
		t.Errorf("the internet was asked for %s", asked[0].Host)
	}
}

// A connection of an address that no claim has is closed before it is looked at.
func TestUnknownSource(t *testing.T) {
	w := newWorld(t, nil)
	w.claim(t, 1, "c1", ruled(secretValue))
	if _, err := w.secure(t, 2, "api.example"); err == nil {
		t.Error("a neighbour of the sandbox was served")
	}
	w.lost.Store(true)
	if _, err := w.secure(t, 1, "api.example"); err == nil {
		t.Error("served without the lease")
	}
}

// A pod that has no claim yet gets one before its connection is looked at.
func TestConnectionBeforeTheClaim(t *testing.T) {
	w := newWorld(t, nil)
	w.idle(1)
	for { // until its connections wait for the claim, rather than be refused at once
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, _ = w.Claims().Arrive(podAddr(1)).Wait(ctx, func() {})
		waited := ctx.Err() != nil
		cancel()
		if waited {
			break
		}
	}
	c := tls.Client(dialFrom(t, 1, w.o.Listeners.HTTPS), &tls.Config{ServerName: "api.example", RootCAs: w.trust})
	done := make(chan error, 1)
	go func() { done <- c.HandshakeContext(t.Context()) }()
	w.rules(t, 1, "c1", names.Rules{DenyAll: true, AllowNames: []string{"api.example"}})
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// closes waits until a connection is closed from the other side.
func closes(t *testing.T, what string, c io.Reader) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("%s: read %d bytes", what, n)
	} else if strings.Contains(err.Error(), "timeout") {
		t.Errorf("%s is open still", what)
	}
}

// A new connection to a host resumes the TLS session of one before, whichever sandbox that was
// for, and so verifies no certificate again. One to another host does not.
func TestSessionsOfHosts(t *testing.T) {
	w := newWorld(t, nil)
	w.secrets["team/key"] = "value"
	headers := map[string]string{"Authorization": "Bearer ${e2b.secrets.key}"}
	rules := names.Rules{DenyAll: true, AllowNames: []string{"api.example", "ruled.example"}, Headers: map[string]map[string]string{"api.example": headers, "ruled.example": headers}}
	w.claim(t, 1, "c1", rules)
	w.claim(t, 2, "c2", rules)
	for i, c := range []struct {
		from    byte
		host    string
		resumes bool
	}{{1, "api.example", false}, {1, "api.example", true}, {2, "api.example", true}, {2, "ruled.example", false}} {
		client := w.client(t, c.from, false) // with connections of its own
		got, err := client.Get("https://" + c.host + "/")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, got.Body) // session tickets come before
		_ = got.Body.Close()
		client.CloseIdleConnections()
		if asked := w.asked(); len(asked) != i+1 || asked[i].TLS.DidResume != c.resumes {
			t.Errorf("request %d of pod %d to %s: %d requests, resumed: %t", i, c.from, c.host, len(asked), asked[len(asked)-1].TLS.DidResume)
		}
	}
}

// Certificates that were made before the authority was replaced are not shown any more.
func TestAuthorityReplaced(t *testing.T) {
	w := newWorld(t, nil)
	w.claim(t, 1, "c1", ruled(secretValue))
	for _, name := range []string{"egress", "egress", "another"} {
		if name == "another" {
			other := authority(t, name)
			w.by.Store(other)
			w.trust.AddCert(other.Cert)
		}
		c, err := w.secure(t, 1, "ruled.example")
		if err != nil {
			t.Fatal(err)
		}
		if by := c.ConnectionState().PeerCertificates[0].Issuer.CommonName; by != name {
			t.Errorf("a certificate by %s, want %s", by, name)
		}
	}
}
