package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sandlane/sandlane/egress/names"
)

// connectProxy serves CONNECT and nothing else: what the least proxy costs.
func connectProxy(b *testing.B, to string) net.Addr {
	b.Helper()
	l := listen(b)
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				in := bufio.NewReader(c)
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				up, err := net.Dial("tcp4", to)
				if err != nil {
					return
				}
				defer func() { _ = up.Close() }()
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
				go func() { _, _ = io.Copy(up, c) }()
				_, _ = io.Copy(c, up)
			}()
		}
	}()
	return l.Addr()
}

// cpu is the time that this process has computed: client, proxy and host together.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRequests are HTTPS requests beside those that go to the host directly, and by a
// proxy with CONNECT: on a kept connection, and on a new one each.
func BenchmarkRequests(b *testing.B) {
	w := newWorld(b, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "ok") })
	w.claim(b, 1, "c1", names.Rules{
		DenyAll: true, AllowNames: []string{"api.example", "ruled.example"},
		Headers: map[string]map[string]string{"ruled.example": {"Authorization": "Bearer ${e2b.secrets.key}"}},
	})
	w.secrets["team/key"] = "value"
	host := "127.0.0.1:" + strconv.Itoa(int(w.ports[443]))
	byConnect := connectProxy(b, host).String()
	from := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(podAddr(1), 0))}
	dials := []struct {
		way, host string
		dial      func(context.Context) (net.Conn, error)
	}{
		{"direct", "api.example", func(ctx context.Context) (net.Conn, error) { return from.DialContext(ctx, "tcp4", host) }},
		{"connect", "api.example", func(ctx context.Context) (net.Conn, error) {
			c, err := from.DialContext(ctx, "tcp4", byConnect)
			if err == nil {
				_, err = io.WriteString(c, "CONNECT api.example:443 HTTP/1.1\r\nHost: api.example\r\n\r\n")
			}
			if err == nil {
				_, err = io.ReadFull(c, make([]byte, len("HTTP/1.1 200 OK\r\n\r\n")))
			}
			return c, err
		}},
		{"passed", "api.example", func(ctx context.Context) (net.Conn, error) {
			return from.DialContext(ctx, "tcp4", w.o.Listeners.HTTPS.Addr().String())
		}},
		{"intercepted", "ruled.example", func(ctx context.Context) (net.Conn, error) {
			return from.DialContext(ctx, "tcp4", w.o.Listeners.HTTPS.Addr().String())
		}},
	}
	for _, kept := range []bool{true, false} {
		for _, d := range dials {
			b.Run(map[bool]string{true: "kept/", false: "new/"}[kept]+d.way, func(b *testing.B) {
				tr := &http.Transport{
					DisableKeepAlives: !kept, TLSClientConfig: &tls.Config{RootCAs: w.trust},
					DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.dial(ctx) },
				}
				defer tr.CloseIdleConnections()
				var took []time.Duration
				one := func() {
					begun := time.Now()
					answer, err := (&http.Client{Transport: tr}).Get("https://" + d.host + "/")
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
					took = append(took, time.Since(begun))
				}
				one() // the first use of a name makes its certificate
				took = nil
				computed := cpu()
				for b.Loop() {
					one()
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64((cpu()-computed).Microseconds())/1000/float64(len(took)), "cpu-ms/op")
			})
		}
	}
}
