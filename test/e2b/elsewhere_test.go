package e2b

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// gatewayFrom returns a URL of the gateway behind which every connection comes
// from an address: limits are counted by source, and this one is used up alone.
func gatewayFrom(t *testing.T, source string) string {
	t.Helper()
	gateway, plain := strings.CutPrefix(shared.Up.GatewayURL, "http://")
	if !plain {
		t.Fatalf("the gateway is at %s", shared.Up.GatewayURL)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			open.Go(func() { join(ctx, client, dialer, gateway) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		open.Wait()
	})
	return "http://" + l.Addr().String()
}

// join copies between a client and the gateway until either ends, or ctx does.
func join(ctx context.Context, client net.Conn, dialer *net.Dialer, gateway string) {
	defer func() { _ = client.Close() }()
	server, err := dialer.DialContext(ctx, "tcp", gateway)
	if err != nil {
		return // the client sees it
	}
	defer func() { _ = server.Close() }()
	defer context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = server.Close()
	})()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close()
	<-done
}
