package egress

import (
	"context"
	"crypto/x509"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/test/ports"
)

// Each way reaches the host as it says; what answers otherwise is no sample.
func TestWays(t *testing.T) {
	dir := t.TempDir()
	by, err := writeAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	var port [4]int
	for i := range port {
		if port[i], err = ports.Free(); err != nil {
			t.Fatal(err)
		}
	}
	serve := func(f func(context.Context, Options) error, https int) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- f(ctx, Options{Dir: dir, HTTPS: https, Names: port[3], Internet: port[0], Sandboxes: 2})
		}()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	serve(Internet, port[0])
	serve(Connect, port[1])
	serve(Egress, port[2])
	w := &world{names: local(port[3]), sandboxes: 2}
	for _, ready := range []func(context.Context) error{w.served, suite.Answers("tcp4", local(port[0])), suite.Answers("tcp4", local(port[1]))} {
		if err := suite.Await(t.Context(), ready); err != nil {
			t.Fatal(err)
		}
	}
	trust := x509.NewCertPool()
	trust.AddCert(by.Cert)
	for _, tc := range []struct {
		way
		host string
		bad  string
	}{
		{way{name: "direct", address: local(port[0])}, open, ""},
		{way{name: "connect", address: local(port[1]), tunnel: true}, open, ""},
		{way{name: "passed", address: local(port[2])}, open, ""},
		{way{name: "intercepted", address: local(port[2]), want: "Bearer " + secret}, ruled(1, 9), ""},
		{way{name: "no credential", address: local(port[0]), want: "Bearer " + secret}, ruled(1, 9), "want"},
		{way{name: "a neighbour's", address: local(port[2]), want: "Bearer " + secret}, ruled(0, 0), "access denied"},
	} {
		tc.trust = trust
		tr := tc.transport(1, true)
		_, err := tc.get(t.Context(), tr, tc.host)
		if tc.bad == "" && err != nil || tc.bad != "" && (err == nil || !strings.Contains(err.Error(), tc.bad)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.bad)
		}
		if tc.bad == "" {
			if _, err := tc.download(t.Context(), tr, tc.host, 1<<20); err != nil {
				t.Errorf("%s: a download: %v", tc.name, err)
			}
		}
		tr.CloseIdleConnections()
	}
}
