package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/sandlane/sandlane/test/certs"
)

// What the good certificates say.
var (
	gatewayLeaf    = certs.Leaf{Names: []string{"other", GatewayIdentity}, Usage: x509.ExtKeyUsageServerAuth}
	controllerLeaf = certs.Leaf{Names: []string{ControllerIdentity}, Usage: x509.ExtKeyUsageClientAuth}
)

// credentialsOf loads what by issued, trusting another's certificates. It is done
// outside of virtual time: a watch of files never rests.
func credentialsOf(t *testing.T, by, trusted *certs.Authority, leaf certs.Leaf, peer string, log *slog.Logger) *MutualTLS {
	t.Helper()
	cert, key := by.Issue(t, leaf)
	files := certs.Write(t, cert, key, trusted.PEM())
	c, err := LoadTLS(TLSFiles{Cert: files[0], Key: files[1], CA: files[2], Peer: peer, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(startReal(t, c))
	return c
}

// said gathers what both sides log.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) log() *slog.Logger { return slog.New(slog.NewTextHandler(s, nil)) }

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Anything but the other side is refused before a call of its is read. The fences stay
// open meanwhile, and the gateway serves.
func TestRefusedPeers(t *testing.T) {
	ours, theirs := certs.New(t), certs.New(t)
	over := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC) // virtual time begins a day later
	serverLeaf := func(change func(*certs.Leaf)) certs.Leaf { l := gatewayLeaf; change(&l); return l }
	clientLeaf := func(change func(*certs.Leaf)) certs.Leaf { l := controllerLeaf; change(&l); return l }
	type side struct {
		plain       bool // speaks no TLS
		noCert      bool // shows none, and trusts anybody
		by, trusted *certs.Authority
		leaf        certs.Leaf
		peer        string
	}
	for name, tc := range map[string]struct {
		change func(gateway, controller *side)
		why    string // "": nobody is refused
	}{
		"right":                    {func(*side, *side) {}, ""},
		"right, by URI":            {func(g, c *side) { c.leaf.URIs, g.peer = []string{"spiffe://d/ns/s/sa/c"}, "spiffe://d/ns/s/sa/c" }, ""},
		"plain-text controller":    {func(_, c *side) { c.plain = true }, "does not look like a TLS handshake"},
		"plain-text gateway":       {func(g, _ *side) { g.plain = true }, "does not look like a TLS handshake"},
		"no certificate":           {func(_, c *side) { c.noCert = true }, "didn't provide a certificate"},
		"controller of another CA": {func(_, c *side) { c.by = theirs }, "unknown authority"},
		"gateway of another CA":    {func(g, _ *side) { g.by = theirs }, "unknown authority"},
		"gateway as a controller":  {func(_, c *side) { c.leaf = clientLeaf(func(l *certs.Leaf) { l.Names = []string{GatewayIdentity} }) }, `want "sandlane-controller"`},
		"controller as a gateway":  {func(g, _ *side) { g.leaf = serverLeaf(func(l *certs.Leaf) { l.Names = []string{ControllerIdentity} }) }, `want "sandlane-gateway"`},
		"a wildcard": {func(_, c *side) {
			c.leaf = clientLeaf(func(l *certs.Leaf) { l.Names = []string{"*", "*.sandlane-controller"} })
		}, `want "sandlane-controller"`},
		"nobody":                   {func(_, c *side) { c.leaf = clientLeaf(func(l *certs.Leaf) { l.Names = nil }) }, `want "sandlane-controller"`},
		"a server's to call with":  {func(_, c *side) { c.leaf = clientLeaf(func(l *certs.Leaf) { l.Usage = x509.ExtKeyUsageServerAuth }) }, "incompatible key usage"},
		"a client's to serve with": {func(g, _ *side) { g.leaf = serverLeaf(func(l *certs.Leaf) { l.Usage = x509.ExtKeyUsageClientAuth }) }, "incompatible key usage"},
		"expired controller":       {func(_, c *side) { c.leaf = clientLeaf(func(l *certs.Leaf) { l.NotAfter = over }) }, "expired"},
		"expired gateway":          {func(g, _ *side) { g.leaf = serverLeaf(func(l *certs.Leaf) { l.NotAfter = over }) }, "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			log := &said{}
			g := &side{by: ours, trusted: ours, leaf: gatewayLeaf, peer: ControllerIdentity}
			c := &side{by: ours, trusted: ours, leaf: controllerLeaf, peer: GatewayIdentity}
			tc.change(g, c)
			server, client := ServerOptions{Log: log.log()}, ClientOptions{Log: log.log()}
			if !g.plain {
				server.TLS = credentialsOf(t, g.by, g.trusted, g.leaf, g.peer, log.log())
			}
			switch {
			case c.noCert:
				anybody := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
				client.Dial = []grpc.DialOption{grpc.WithTransportCredentials(anybody)}
			case !c.plain:
				client.TLS = credentialsOf(t, c.by, c.trusted, c.leaf, c.peer, log.log())
			}
			simulateWith(t, server, client, func(t *testing.T, s *simulation) {
				gw := s.run("g1", "a")
				if tc.why == "" {
					s.wantUnanswered(s.fence(7), "", "between the right two")
					return
				}
				s.wantRefused(gw)
			})
			if quoted := strings.ReplaceAll(log.String(), `\`, ""); !strings.Contains(quoted, tc.why) {
				t.Errorf("nobody says %q:\n%s", tc.why, log)
			}
		})
	}
}

// wantRefused tries every call on a gateway that is reached and not understood.
func (s *simulation) wantRefused(g *gateway) {
	s.t.Helper()
	began := time.Now()
	s.wantUnanswered(s.fence(7), "g1", "a fence")
	if took := time.Since(began); took > DefaultCallTimeout+100*time.Millisecond {
		s.t.Errorf("the fence's first try took %v", took)
	}
	_, err := s.client.GetLastActive(s.t.Context())
	s.wantUnanswered(err, "g1", "what is in use")
	_, err = s.client.PrepareRelease(s.t.Context(), []Release{{SandboxID: "x"}})
	s.wantUnanswered(err, "g1", "a release for idleness")
	if err := s.client.EnforcePause(s.t.Context(), EnforcePause{SandboxID: "x"}); err == nil {
		s.t.Error("enforced")
	}
	after(time.Minute)
	s.wantUnanswered(s.fence(7), "g1", "a fence, later")
	g.wantHeld(s.t, true, "refused by its controller")
	if g.Holder() != "a/1" {
		s.t.Error("its lease was revoked by a controller that no gateway understands")
	}
	if g.fences.asked() != 0 || len(g.use.cursors) != 0 || len(g.releases.asked) != 0 {
		s.t.Errorf("it was heard: fences %v, cursors %v, releases %v", g.fences.calls, g.use.cursors, g.releases.asked)
	}
	for _, event := range g.log.all() {
		if event == "drain" {
			s.t.Error("it was told to drain")
		}
	}
}

// A connection does not outlive its certificates for long, and none of the calls
// fails because connections are made anew.
func TestConnectionsAreMadeAnew(t *testing.T) {
	ca := certs.New(t)
	expires := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC) // an hour after virtual time begins
	leaf := controllerLeaf
	leaf.NotAfter = expires
	server := ServerOptions{TLS: credentialsOf(t, ca, ca, gatewayLeaf, ControllerIdentity, nil)}
	client := ClientOptions{TLS: credentialsOf(t, ca, ca, leaf, GatewayIdentity, nil)}
	simulateWith(t, server, client, func(t *testing.T, s *simulation) {
		g := s.run("g1", "a")
		rv := uint64(0)
		for ; time.Now().Before(expires); after(7 * time.Second) {
			rv++
			s.wantUnanswered(s.fence(rv), "", "before it expires, after "+time.Since(expires).String())
		}
		if n := g.fences.asked(); n != int(rv) || rv < 500 {
			t.Errorf("%d fences, asked %d times", rv, n)
		}
		for rv++; s.fence(rv) == nil; rv++ {
			if time.Since(expires) > connectionAge*11/10+connectionGrace {
				t.Fatalf("still understood %v after the certificate expired", time.Since(expires))
			}
			after(7 * time.Second)
		}
		t.Logf("%d fences, refused %v after the certificate expired", rv, time.Since(expires).Round(time.Second))
	})
}

func TestLoadCredentials(t *testing.T) {
	ca := certs.New(t)
	cert, key := ca.Issue(t, gatewayLeaf)
	_, otherKey := ca.Issue(t, gatewayLeaf)
	paths := certs.Write(t, cert, key, ca.PEM(), otherKey, []byte("hello"))
	good := TLSFiles{Cert: paths[0], Key: paths[1], CA: paths[2], Peer: ControllerIdentity}
	for name, change := range map[string]func(*TLSFiles){
		"no certificate":   func(f *TLSFiles) { f.Cert = "" },
		"no key":           func(f *TLSFiles) { f.Key = "" },
		"no authority":     func(f *TLSFiles) { f.CA = "" },
		"no identity":      func(f *TLSFiles) { f.Peer = "" },
		"missing file":     func(f *TLSFiles) { f.Cert += ".gone" },
		"another's key":    func(f *TLSFiles) { f.Key = paths[3] },
		"not an authority": func(f *TLSFiles) { f.CA = paths[4] },
		"missing CA":       func(f *TLSFiles) { f.CA += ".gone" },
	} {
		f := good
		change(&f)
		if _, err := LoadTLS(f); err == nil || !strings.HasPrefix(err.Error(), "control-plane TLS: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := LoadTLS(good)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(startReal(t, c))
	// What stands there while the file is being replaced changes nothing.
	if err := os.WriteFile(good.CA, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	client, _ := ca.Issue(t, controllerLeaf)
	if err := c.verify(parse(t, client), x509.ExtKeyUsageClientAuth); err != nil {
		t.Errorf("with an empty file in place of the authorities: %v", err)
	}
}

// Without files the control plane is a unix socket and nothing else.
func TestNoPlainTextBetweenPods(t *testing.T) {
	if _, err := NewServer(realServer(t, listenTCP(t), nil)); err == nil || !strings.Contains(err.Error(), "TLS files are required") {
		t.Errorf("a server on TCP without TLS: %v", err)
	}
	l := listenTCP(t)
	connected := make(chan struct{}, 1)
	go func() {
		if conn, err := l.Accept(); err == nil {
			conn.Close()
			connected <- struct{}{}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	client, _ := realClient(t, l.Addr().String(), nil)
	if err := client.EnforcePause(ctx, EnforcePause{SandboxID: "x"}); err == nil || !strings.Contains(err.Error(), "TLS files are required") {
		t.Errorf("a client of TCP without TLS: %v", err)
	}
	select {
	case <-connected:
		t.Error("it connected")
	default:
	}
}

// A side with another peer lets that one in, and no longer the first: a gateway's certificate
// makes no egress process.
func TestForAnotherPeer(t *testing.T) {
	ours := certs.New(t)
	controller := credentialsOf(t, ours, ours, controllerLeaf, GatewayIdentity, slog.New(slog.DiscardHandler))
	shown := func(name string) []*x509.Certificate {
		text, _ := ours.Issue(t, certs.Leaf{Names: []string{name}, Usage: x509.ExtKeyUsageServerAuth})
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return []*x509.Certificate{cert}
	}
	for _, c := range []struct {
		side *MutualTLS
		name string
		ok   bool
	}{
		{controller, GatewayIdentity, true}, {controller, EgressIdentity, false},
		{controller.For(EgressIdentity), EgressIdentity, true}, {controller.For(EgressIdentity), GatewayIdentity, false},
	} {
		if err := c.side.verify(shown(c.name), x509.ExtKeyUsageServerAuth); (err == nil) != c.ok {
			t.Errorf("%s, where %s is wanted: %v", c.name, c.side.files.Peer, err)
		}
	}
}
