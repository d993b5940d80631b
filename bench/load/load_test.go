package load

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandlane/sandlane/bench/upstream"
	"github.com/sandlane/sandlane/test/bubble"
)

// serve runs the sandboxes' server until the test ends.
func serve(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- upstream.Serve(l) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestOnceAsksEachHostOnce(t *testing.T) {
	hosts := make([]string, 100)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("8000-b%d.localhost", i)
	}
	r, err := Once(t.Context(), Target{Address: serve(t), Hosts: hosts, Connections: 7}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 100 || r.Errors != 0 || r.P50 <= 0 || r.P999 < r.P50 {
		t.Errorf("%+v", r)
	}
}

// Rare hosts are named one after the other, beginning with RareFrom.
func TestRareHostsGoOn(t *testing.T) {
	c := &connection{t: Target{Hosts: []string{"c"}, Rare: []string{"r0", "r1", "r2"}, RareEvery: 2, RareFrom: 4}, next: new(atomic.Int64)}
	var got []string
	for range 6 {
		host, _ := c.host()
		got = append(got, host)
	}
	if want := "[c r1 c r2 c r0]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// A rate is kept: no more is sent, however fast the answers are.
func TestOpenKeepsItsRate(t *testing.T) {
	r, err := Open(t.Context(), Target{Address: serve(t), Hosts: []string{"x"}, Connections: 4}, 500*time.Millisecond, 200)
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 100 {
		t.Errorf("%d requests in half a second at 200/s", r.Requests)
	}
}

// If a server stops for a while, all requests that were due meanwhile are late, not only
// the one that was under way.
func TestOpenCountsFromWhenARequestWasDue(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		start := time.Now()
		s := schedule{due: start, end: start.Add(time.Second), every: 100 * time.Millisecond}
		var late []time.Duration
		for i := 0; ; i++ {
			from, more := s.wait(context.Background())
			if !more {
				break
			}
			if i == 2 {
				time.Sleep(350 * time.Millisecond) // the server's pause, within a request
			}
			late = append(late, time.Since(from).Round(time.Millisecond))
		}
		want := "[0s 0s 350ms 250ms 150ms 50ms 0s 0s 0s 0s]"
		if got := fmt.Sprint(late); got != want {
			t.Errorf("latencies %v, want %v", got, want)
		}
	})
}

func TestFailuresAreSeen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 1000))
		fmt.Fprint(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nsorr")
		_, _ = c.Read(make([]byte, 1000))
	}()
	r, err := Once(t.Context(), Target{Address: l.Addr().String(), Hosts: []string{"a", "b"}, Connections: 1}, time.Minute)
	if err == nil || r.Errors != 2 || r.Requests != 0 {
		t.Errorf("%+v, %v: want a 503 and a broken connection", r, err)
	}
	if err := r.Check(); err == nil {
		t.Error("a round of failures is a measurement")
	}
}

func TestParseWrk(t *testing.T) {
	r, err := parseWrk("Running 1s test\nRequests/sec: 1\n\nJSON {\"requests\":1002,\"micros\":2000000,\"errors\":2,\"p50\":100,\"p99\":2000,\"p999\":30000}\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Report{Requests: 1000, Errors: 2, Took: 2 * time.Second, P50: 100 * time.Microsecond, P99: 2 * time.Millisecond, P999: 30 * time.Millisecond}
	if r != want || r.PerSecond() != 500 {
		t.Errorf("%+v, want %+v", r, want)
	}
	if _, err := parseWrk("unable to connect"); err == nil || !strings.Contains(err.Error(), "unable to connect") {
		t.Errorf("%v", err)
	}
}
