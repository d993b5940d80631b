package helm

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// socketGrace is drainGraceSeconds of testdata/values.yaml.
const socketGrace = 10 * time.Second

// socket is the result of one WebSocket.
type socket struct {
	Gateway  string // its address
	Messages int    // echoed
	Wrong    int    // whose echo was another message
	Ended    time.Time
	How      string
}

// holdSockets opens a WebSocket to the sandbox args[0] through each gateway of the
// other arguments, and sends messages until the gateway ends it.
func holdSockets(ctx context.Context, args []string) (any, error) {
	ended := make(chan socket)
	for _, address := range args[1:] {
		conn, resp, err := websocket.Dial(ctx, "http://"+address+":8080/ws", &websocket.DialOptions{
			HTTPHeader: http.Header{"X-Sandbox-Id": {args[0]}, "X-Sandbox-Port": {"8000"}},
		})
		if resp != nil && resp.Body != nil {
			defer resp.Body.Close()
		}
		if err != nil {
			return nil, fmt.Errorf("open a WebSocket through %s: %w", address, err)
		}
		go func() { ended <- talk(ctx, conn, address) }()
	}
	fmt.Println(opened)
	var all []socket
	for range args[1:] {
		all = append(all, <-ended)
	}
	return all, nil
}

func talk(ctx context.Context, conn *websocket.Conn, gateway string) socket {
	defer func() { _ = conn.CloseNow() }()
	s := socket{Gateway: gateway}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		text := []byte(gateway + " " + strconv.Itoa(s.Messages))
		err := conn.Write(ctx, websocket.MessageText, text)
		var back []byte
		if err == nil {
			_, back, err = conn.Read(ctx)
		}
		if err != nil {
			s.Ended, s.How = time.Now(), err.Error()
			return s
		}
		if s.Messages++; !bytes.Equal(back, text) {
			s.Wrong++
		}
		<-tick.C
	}
}

// addresses returns the addresses of an app's pods that run and are not ending.
func (c *cluster) addresses(t *testing.T, app string) []string {
	t.Helper()
	return c.ofPods(t, app, "status.podIP")
}

// ofPods returns a field of each pod of an app that runs and is not being deleted.
func (c *cluster) ofPods(t *testing.T, app, field string) []string {
	t.Helper()
	var all []string
	for _, pod := range strings.Fields(c.kubectl(t, "-n", system, "get", "pods", "-l", "app="+app, "--field-selector=status.phase=Running",
		"-o", "jsonpath={range .items[*]}{.metadata.deletionTimestamp}|{."+field+"} {end}")) {
		if value, ok := strings.CutPrefix(pod, "|"); ok {
			all = append(all, value)
		}
	}
	return all
}

// leaving notes when each pod of an app began to end.
type leaving struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

func (c *cluster) watchLeaving(t *testing.T, app string) *leaving {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &leaving{cmd: c.Command(ctx, "kubectl", "-n", system, "get", "pods", "-l", "app="+app, "--watch", "--no-headers",
		"-o", "custom-columns=IP:.status.podIP,AT:.metadata.deletionTimestamp,GRACE:.metadata.deletionGracePeriodSeconds")}
	l.cmd.Stdout = &l.out
	l.cmd.WaitDelay = 100 * time.Millisecond // nsenter is killed, kubectl with the node
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cancel)
	return l
}

// times ends the watch and returns when each address's pod was deleted. Kubernetes
// rounds down to a second.
func (l *leaving) times(t *testing.T) map[string]time.Time {
	t.Helper()
	_ = l.cmd.Process.Kill()
	_ = l.cmd.Wait()
	times := map[string]time.Time{}
	for line := range strings.Lines(l.out.String()) {
		f := strings.Fields(line)
		if len(f) != 3 || f[1] == "<none>" {
			continue
		}
		at, err := time.Parse(time.RFC3339, f[1])
		grace, graceErr := strconv.Atoi(f[2])
		if err := errors.Join(err, graceErr); err != nil {
			t.Fatalf("kubectl printed %q: %v", line, err)
		}
		if _, known := times[f[0]]; !known { // at the very end its grace is 0
			times[f[0]] = at.Add(-time.Duration(grace) * time.Second)
		}
	}
	return times
}

// livedOn checks that each WebSocket got its own messages back, and was open for the
// grace of the gateway that it went through.
func livedOn(t *testing.T, sockets []socket, deleted map[string]time.Time) {
	t.Helper()
	for _, s := range sockets {
		began, known := deleted[s.Gateway]
		if !known {
			t.Errorf("the WebSocket through %s ended (%s), and that gateway has not", s.Gateway, s.How)
			continue
		}
		lived := s.Ended.Sub(began)
		fmt.Printf("      a WebSocket lived on for %.1f s after its gateway was told to stop: %d messages, %s\n", lived.Seconds(), s.Messages, s.How)
		if s.Wrong > 0 || s.Messages < 10 || lived < socketGrace || lived > socketGrace+15*time.Second {
			t.Errorf("%+v lived on for %s, want about %s and no wrong message", s, lived, socketGrace)
		}
	}
}

// readLeaf reads the certificate that the TLS server at args[0] shows.
func readLeaf(ctx context.Context, args []string) (any, error) {
	var leaf string
	d := tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, // the certificate is read, not trusted
		VerifyConnection: func(s tls.ConnectionState) error {
			leaf = hex.EncodeToString(s.PeerCertificates[0].SerialNumber.Bytes())
			return nil
		},
	}}
	conn, err := d.DialContext(ctx, "tcp", args[0])
	if err == nil {
		_ = conn.Close()
	}
	if leaf == "" {
		return nil, fmt.Errorf("%s showed no certificate: %w", args[0], err)
	}
	return leaf, nil // it may refuse a client without a certificate
}
