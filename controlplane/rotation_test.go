package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/certs"
)

func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// realServer are a server's options in real time; its lease is "gw" of "a".
func realServer(t *testing.T, l net.Listener, c *MutualTLS) ServerOptions {
	t.Helper()
	return ServerOptions{
		Listener: l, TLS: c, Member: &fixedMember{}, Fencer: &fakeFencer{}, Activity: &fakeActivity{}, Releaser: &fakeReleaser{},
		PauseEnforcer: &fakePauseEnforcer{}, Demand: &fakeDemand{},
	}
}

// realClient is a controller that knows one gateway, at the address.
func realClient(t *testing.T, address string, c *MutualTLS) (*Client, *fakeAPI) {
	t.Helper()
	api := newFakeAPI()
	l := lease("gw", "a/1", 3600, time.Now())
	l.Annotations = map[string]string{v1alpha1.AnnotationGatewayAddress: address}
	api.put("create", l)
	client, err := NewClient(ClientOptions{Directory: newDirectory(t, api), TLS: c, CallTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, api
}

func parse(t *testing.T, text []byte) []*x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return []*x509.Certificate{cert}
}

// mounted is a folder of files that is changed as a kubelet does it with a Secret's:
// the names are links, and all of them get new contents by one rename.
type mounted struct {
	t    *testing.T
	dir  string
	n    int
	has  map[string][]byte
	load *MutualTLS
}

func mount(t *testing.T, peer string, files map[string][]byte) *mounted {
	t.Helper()
	m := &mounted{t: t, dir: t.TempDir(), has: files}
	m.write(files)
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), m.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	m.load, err = LoadTLS(TLSFiles{Cert: m.path("tls.crt"), Key: m.path("tls.key"), CA: m.path("ca.crt"), Peer: peer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(startReal(t, m.load))
	return m
}

func (m *mounted) path(name string) string { return filepath.Join(m.dir, name) }

func (m *mounted) write(files map[string][]byte) {
	m.t.Helper()
	for name, content := range files {
		m.has[name] = content
	}
	m.n++
	old, _ := os.Readlink(m.path("..data"))
	fresh := fmt.Sprintf("..%d", m.n)
	err := os.Mkdir(m.path(fresh), 0o700)
	for name, content := range m.has {
		err = errors.Join(err, os.WriteFile(filepath.Join(m.path(fresh), name), content, 0o600))
	}
	err = errors.Join(err, os.Symlink(fresh, m.path("..tmp")), os.Rename(m.path("..tmp"), m.path("..data")))
	if old != "" {
		err = errors.Join(err, os.RemoveAll(m.path(old)))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// Both sides get certificates of another authority while calls go on: at first
// both trust both authorities, then one side after the other shows its new
// certificate, then both stop trusting the old one. No process is started again and no
// call fails; a peer that shows an old certificate then is refused.
func TestRotation(t *testing.T) {
	before, next := certs.New(t), certs.New(t)
	pair := func(by *certs.Authority, leaf certs.Leaf) map[string][]byte {
		cert, key := by.Issue(t, leaf)
		return map[string][]byte{"tls.crt": cert, "tls.key": key}
	}
	with := func(files map[string][]byte, ca []byte) map[string][]byte { files["ca.crt"] = ca; return files }
	both := append(before.PEM(), next.PEM()...)
	gateway := mount(t, ControllerIdentity, with(pair(before, gatewayLeaf), before.PEM()))
	controller := mount(t, GatewayIdentity, with(pair(before, controllerLeaf), before.PEM()))
	stale := credentialsOf(t, before, before, controllerLeaf, GatewayIdentity, nil)

	l := listenTCP(t)
	server, err := NewServer(realServer(t, l, gateway.load))
	if err != nil {
		t.Fatal(err)
	}
	defer startReal(t, server)()
	address := l.Addr().String()
	client, _ := realClient(t, address, controller.load)
	var fences atomic.Uint64
	quit, quitted := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(quitted)
		for rv := uint64(1); ; rv++ {
			select {
			case <-quit:
				return
			default:
			}
			if err := client.Fence(context.Background(), addr1, rv); err != nil {
				t.Errorf("fence %d: %v", rv, err)
				return
			}
			fences.Add(1)
			client.prune(nil, client.beginList()) // the next one connects anew
		}
	}()
	some := func(what string) {
		t.Helper()
		enough := fences.Load() + 5
		eventually(t, "fences "+what, func() bool { return fences.Load() >= enough })
	}
	some("with the first certificates")
	gateway.write(map[string][]byte{"ca.crt": both})
	controller.write(map[string][]byte{"ca.crt": both})
	some("trusting both authorities")
	gateway.write(pair(next, gatewayLeaf))
	eventually(t, "the gateway's new certificate", func() bool { return shows(t, address, gateway.has["tls.crt"]) })
	some("with the gateway's new certificate")
	controller.write(pair(next, controllerLeaf))
	eventually(t, "the controller's new certificate", func() bool {
		cert, err := controller.load.watcher.GetCertificate(nil)
		return err == nil && string(cert.Certificate[0]) == string(parse(t, controller.has["tls.crt"])[0].Raw)
	})
	some("with the controller's new certificate")
	gateway.write(map[string][]byte{"ca.crt": next.PEM()})
	controller.write(map[string][]byte{"ca.crt": next.PEM()})
	some("trusting the new authority")
	close(quit)
	<-quitted

	old, _ := realClient(t, address, stale)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := old.EnforcePause(ctx, EnforcePause{SandboxID: "x"}); err == nil {
		t.Error("a controller of the old authority was heard")
	}
	t.Logf("%d fences, each over a connection of its own", fences.Load())
}

// shows tells whether the server at an address shows the certificate.
func shows(t *testing.T, address string, cert []byte) bool {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		return false
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Equal(parse(t, cert)[0])
}
