package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/test/kubetest"
)

// A gateway that starts before the API server stays, is not ready, and becomes so
// by itself when the API server is there.
func TestStartBeforeTheAPIServer(t *testing.T) {
	ns := kubetest.Namespace(t)
	seed(t, kubetest.Client(t), ns)
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	address, api := freeAddress(t), freeAddress(t)
	cfg := rest.CopyConfig(kubetest.Config(t))
	server, err := url.Parse(cfg.Host)
	if err != nil || server.Host == "" {
		t.Fatalf("the API server is at %q: %v", cfg.Host, err)
	}
	cfg.Host = server.Scheme + "://" + api
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{Config: cfg, Name: "early", RunDir: dir, SystemNamespace: ns, MetricsAddress: address})
	}()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the gateway ended with %v", err)
		}
	}()
	want := func(status int) func() error {
		return func() error {
			select {
			case err := <-done:
				done <- err
				t.Fatalf("the gateway ended: %v", err)
			default:
			}
			c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
			res, err := c.Get("http://" + address + "/readyz")
			if err != nil {
				return err
			}
			_ = res.Body.Close()
			if res.StatusCode != status {
				return fmt.Errorf("readyz says %d, want %d", res.StatusCode, status)
			}
			return nil
		}
	}
	for range 20 { // longer than its first tries
		kubetest.Eventually(t, "the gateway to say that it is not ready", want(http.StatusServiceUnavailable))
		<-time.After(50 * time.Millisecond)
	}
	relay(t, api, server.Host)
	kubetest.Eventually(t, "the gateway to be ready", want(http.StatusOK))
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// relay passes connections on until the test is over.
func relay(t *testing.T, at, to string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	over := make(chan struct{})
	open.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			// Clients keep an idle connection for minutes.
			open.Go(func() {
				<-over
				_, _ = in.Close(), out.Close()
			})
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				open.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_, _ = in.Close(), out.Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		close(over)
		open.Wait()
	})
}
