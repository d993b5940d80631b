package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// raw sends a request exactly as written, which net/http would refuse to
// build, and returns status and body.
func raw(t *testing.T, request string) (int, string) {
	t.Helper()
	u, err := url.Parse(shared.Up.GatewayURL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialTimeout("tcp", u.Host, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// addressOf waits until the sandbox's status names its pod's address.
func addressOf(t *testing.T, id string) (address string) {
	t.Helper()
	shared.Eventually(t, 10*time.Second, "the address of "+id, func() (bool, string) {
		sb, _ := shared.Sandbox(t, id)
		address = sb.Status.Address
		return address != "", string(sb.Status.Phase)
	})
	return address
}

// No client-sent header, host trick or encoding reaches a pod that the target
// does not name.
func TestSpoofing(t *testing.T) {
	mine := shared.Touch(t, "spoof-mine", "")
	victim := shared.Touch(t, "spoof-victim", "")
	address := addressOf(t, "spoof-victim")
	if mine.PodUID == victim.PodUID {
		t.Fatal("both sandboxes are in one pod")
	}

	t.Run("internal headers", func(t *testing.T) {
		for _, h := range []string{
			"X-Envoy-Original-Dst-Host", "X-Envoy-Original-Path", "X-Envoy-Upstream-Alt-Stat-Name", "X-Envoy-Decorator-Operation",
			"X-Envoy-Internal", "X-Envoy-Retry-On", "X-Envoy-Upstream-Rq-Timeout-Ms", "X-Gateway-Destination-Endpoint", "X-Forwarded-Host",
		} {
			a := shared.Do(t, nil, stack.Request{ID: "spoof-mine", Header: map[string]string{h: address + ":8000"}})
			if a.Echo == nil || a.Echo.PodUID != mine.PodUID {
				t.Errorf("%s: %v", h, a)
			} else if strings.HasPrefix(h, "X-Envoy-") && a.Echo.Headers[h] != nil {
				t.Errorf("the pod saw %s", h)
			}
		}
	})
	t.Run("host form ignores routing headers", func(t *testing.T) {
		req := byHost(t, "GET", "8000-spoof-mine.localhost", "/", nil)
		req.Header.Set("X-Sandbox-Id", "spoof-victim")
		req.Header.Set("X-Sandbox-Port", "8000")
		req.Header.Set("E2b-Sandbox-Id", "spoof-victim")
		req.Header.Set("E2b-Sandbox-Port", "8000")
		if a := send(t, nil, req); a.Echo == nil || a.Echo.PodUID != mine.PodUID {
			t.Errorf("got %v", a)
		}
	})
	head := "\nConnection: close\n\n"
	for name, request := range map[string]string{
		"two IDs":              "GET / HTTP/1.1\nHost: localhost\nX-Sandbox-Id: spoof-mine\nX-Sandbox-Id: spoof-victim\nX-Sandbox-Port: 8000" + head,
		"two ports":            "GET / HTTP/1.1\nHost: localhost\nX-Sandbox-Id: spoof-mine\nX-Sandbox-Port: 8000\nX-Sandbox-Port: 8000" + head,
		"comma in the ID":      "GET / HTTP/1.1\nHost: localhost\nX-Sandbox-Id: spoof-mine,spoof-victim\nX-Sandbox-Port: 8000" + head,
		"disagreeing families": "GET / HTTP/1.1\nHost: localhost\nX-Sandbox-Id: spoof-mine\nX-Sandbox-Port: 8000\nE2b-Sandbox-Id: spoof-victim\nE2b-Sandbox-Port: 8000" + head,
		"port missing":         "GET / HTTP/1.1\nHost: localhost\nX-Sandbox-Id: spoof-mine" + head,
		"upper case":           "GET / HTTP/1.1\nHost: localhost\nX-Sandbox-Id: Spoof-Mine\nX-Sandbox-Port: 8000" + head,
		"unicode":              "GET / HTTP/1.1\nHost: localhost\nX-Sandbox-Id: spoof-mïne\nX-Sandbox-Port: 8000" + head,
		"58 characters":        "GET / HTTP/1.1\nHost: localhost\nX-Sandbox-Id: " + strings.Repeat("a", 58) + "\nX-Sandbox-Port: 8000" + head,
		"trailing dash":        "GET / HTTP/1.1\nHost: localhost\nX-Sandbox-Id: spoof-\nX-Sandbox-Port: 8000" + head,
		"leading dash":         "GET / HTTP/1.1\nHost: localhost\nX-Sandbox-Id: -spoof\nX-Sandbox-Port: 8000" + head,
		"trailing dot":         "GET / HTTP/1.1\nHost: localhost\nX-Sandbox-Id: spoof.\nX-Sandbox-Port: 8000" + head,
		"leading dot":          "GET / HTTP/1.1\nHost: localhost\nX-Sandbox-Id: .spoof\nX-Sandbox-Port: 8000" + head,
		"port 0":               "GET / HTTP/1.1\nHost: 0-spoof-mine.localhost" + head,
		"port 65536":           "GET / HTTP/1.1\nHost: 65536-spoof-mine.localhost" + head,
		"port 08000":           "GET / HTTP/1.1\nHost: 08000-spoof-mine.localhost" + head,
		"upper case host":      "GET / HTTP/1.1\nHost: 8000-Spoof_Mine.localhost" + head,
		"encoded slash in ID":  "GET /sandboxes/spoof-mine%2f..%2fspoof-victim/8000/ HTTP/1.1\nHost: localhost" + head,
		"dots for an ID":       "GET /sandboxes/%2e%2e/8000/ HTTP/1.1\nHost: localhost" + head,
		"dash host":            "GET / HTTP/1.1\nHost: 8000-.localhost" + head,
	} {
		t.Run(name, func(t *testing.T) {
			status, body := raw(t, request)
			if status != 400 && !(status == 404 && strings.Contains(name, "dots")) {
				t.Errorf("got %d %s, want 400", status, body)
			}
			if strings.Contains(body, victim.PodUID) || strings.Contains(body, mine.PodUID) {
				t.Errorf("a pod answered: %s", body)
			}
		})
	}
	// These may be served, but only by the pod that the target names.
	for name, request := range map[string]string{
		"absolute form":      "GET http://8000-spoof-mine.localhost/ HTTP/1.1\nHost: 8000-spoof-victim.localhost" + head,
		"host with userinfo": "GET / HTTP/1.1\nHost: 8000-spoof-victim.localhost@8000-spoof-mine.localhost" + head,
		"host with port":     "GET / HTTP/1.1\nHost: 8000-spoof-mine.localhost:8000" + head,
		"dot segments":       "GET /sandboxes/spoof-mine/8000/../../spoof-mine/8000/x HTTP/1.1\nHost: localhost" + head,
		"encoded dots":       "GET /sandboxes/spoof-mine/8000/%2e%2e/%2e%2e/spoof-mine/8000/x HTTP/1.1\nHost: localhost" + head,
		"double slashes":     "GET //sandboxes//spoof-mine//8000//x HTTP/1.1\nHost: localhost" + head,
	} {
		t.Run(name, func(t *testing.T) {
			status, body := raw(t, request)
			if strings.Contains(body, victim.PodUID) {
				t.Errorf("the victim answered %d: %s", status, body)
			}
			if status >= 500 {
				t.Errorf("got %d %s", status, body)
			}
		})
	}
	if _, found := shared.Sandbox(t, "spoof-"); found {
		t.Error("an ID with a trailing dash was created")
	}
}

// E2B's control paths on sandboxd's port never reach a pod, however written.
func TestControlPathsAreBlocked(t *testing.T) {
	shared.Touch(t, "control", "")
	for _, path := range []string{"/init", "/freeze", "/upgrade", "//init", "/x/../init", "/%69nit", "/init/", "/fsthaw",
		"/%2569nit", `/\init`, `/x\..\init`, "/x/..%5Cinit", "/x/..%255cinit", "/x%2f%2e%2e%2Finit", "/.//init?x"} {
		status, body := raw(t, "POST "+path+" HTTP/1.1\nHost: 49983-control.localhost\nContent-Length: 0\nConnection: close\n\n")
		if status != 404 || !strings.Contains(body, "reserved") {
			t.Errorf("POST %s: %d %s", path, status, body)
		}
	}
	// Envoy itself refuses a target that does not begin with a slash.
	if status, body := raw(t, "POST \\init HTTP/1.1\nHost: 49983-control.localhost\nContent-Length: 0\nConnection: close\n\n"); status != 400 {
		t.Errorf(`POST \init: %d %s`, status, body)
	}
}
