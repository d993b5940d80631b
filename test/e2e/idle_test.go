package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

const (
	idleTimeout = 5 * time.Second
	idleOpen    = 30 * time.Second
	idleGrace   = time.Minute // beside what runs at the same time
)

// A sandbox with something open is never idle; it is released soon after the
// last of it ended.
func TestIdleRelease(t *testing.T) {
	t.Parallel() // it waits more than it works
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 4, stack.WithIdleTimeout(idleTimeout))
	t.Run("all", func(t *testing.T) {
		for name, open := range map[string]func(t *testing.T, id string){
			"left-alone": func(*testing.T, string) {},
			"brief":      askNowAndThen,
			"websocket":  openWebSocket,
			"stream": func(t *testing.T, id string) {
				get(t, id, fmt.Sprintf("/stream?seconds=%d", int(idleOpen.Seconds())))
			},
			"silent": func(t *testing.T, id string) {
				get(t, id, fmt.Sprintf("/sleep?seconds=%d", int(idleOpen.Seconds())))
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				id := "idle-" + name
				shared.Touch(t, id, ns+"/pool")
				open(t, id) // returns when it ended
				if sb, found := shared.Sandbox(t, id); !found || sb.Spec.End != nil {
					t.Fatalf("released while in use: %+v", sb.Spec.End)
				}
				began := time.Now()
				shared.Eventually(t, idleTimeout+idleGrace, "the idle release", func() (bool, string) {
					sb, _ := shared.Sandbox(t, id)
					return sb.Status.Phase == v1alpha1.SandboxEnded, string(sb.Status.Phase)
				})
				took := time.Since(began)
				sb, _ := shared.Sandbox(t, id)
				if sb.Spec.End.Reason != v1alpha1.EndIdleTimeout {
					t.Errorf("ended for %s", sb.Spec.End.Reason)
				}
				if took < idleTimeout-2*time.Second {
					t.Errorf("released %v after its last use, with an idle timeout of %v", took, idleTimeout)
				}
				t.Logf("released %v after its last use", took.Round(100*time.Millisecond))
			})
		}
	})
}

// askNowAndThen uses the sandbox by short requests alone, which Envoy may answer from the
// route table without asking the gateway.
func askNowAndThen(t *testing.T, id string) {
	t.Helper()
	tick := time.NewTicker(idleTimeout / 5)
	defer tick.Stop()
	for end := time.After(idleOpen); ; {
		res, err := http.DefaultClient.Do(byHost(t, "GET", "8000-"+id+".localhost", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Fatalf("a sandbox in use: %d", res.StatusCode)
		}
		select {
		case <-tick.C:
		case <-end:
			return
		}
	}
}

func openWebSocket(t *testing.T, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), idleOpen+30*time.Second)
	defer cancel()
	c, res, err := websocket.Dial(ctx, shared.Up.GatewayURL+"/ws", &websocket.DialOptions{Host: "8000-" + id + ".localhost"})
	if err != nil {
		t.Fatal(err)
	}
	if res.Body != nil {
		defer func() { _ = res.Body.Close() }()
	}
	defer func() { _ = c.CloseNow() }()
	// Nothing is sent: reading until the time is up keeps it open and silent.
	silent, stop := context.WithTimeout(ctx, idleOpen)
	defer stop()
	began := time.Now()
	if _, _, err := c.Read(silent); time.Since(began) < idleOpen-time.Second {
		t.Fatalf("the WebSocket ended after %v: %v", time.Since(began), err)
	}
}

func get(t *testing.T, id, path string) {
	t.Helper()
	began := time.Now()
	req := byHost(t, "GET", "8000-"+id+".localhost", path, nil)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != 200 {
		t.Fatalf("%s ended after %v with %d: %v", path, time.Since(began), res.StatusCode, err)
	}
	if d := time.Since(began); d < idleOpen-2*time.Second {
		t.Fatalf("%s ended after %v", path, d)
	}
}
