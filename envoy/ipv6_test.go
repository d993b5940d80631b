package envoy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// With the default address clients of both families reach Envoy, and pods of IPv6 are
// reached. Clients of IPv4 keep their addresses: each has a rate of its own, where all
// mapped ones would share one /64. A drain turns both away.
func TestBothFamilies(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	if got := AnyAddress(); got != "::" {
		t.Fatalf("the default address is %s", got)
	}
	pod := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "from the pod") }))
	pod.Listener.Close()
	pod.Listener = l
	pod.Start()
	defer pod.Close()
	o := Options{ListenAddress: AnyAddress(), ClientRate: 1}
	w := startWorld(t, o, true)
	w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return to(l.Addr().String()) }
	_, port, err := net.SplitHostPort(w.url[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		if resp, body := fetchFrom(t, w, from); resp.StatusCode != http.StatusOK || body != "from the pod" {
			t.Errorf("from %s: %d %q", from, resp.StatusCode, body)
		}
	}
	w.url = "http://[::1]:" + port
	if resp, body := w.get(t, "/"); resp.StatusCode != http.StatusOK || body != "from the pod" {
		t.Errorf("by IPv6: %d %q", resp.StatusCode, body)
	}
	letIn, err := w.admin.turnAway(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer letIn()
	for _, host := range []string{"127.0.0.1", "::1"} {
		wantDial(t, net.JoinHostPort(host, port), context.DeadlineExceeded)
	}
	letIn()
	for _, host := range []string{"127.0.0.1", "::1"} {
		wantDial(t, net.JoinHostPort(host, port), nil)
	}
}
