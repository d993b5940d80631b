package helm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// clientEnv makes this test binary a client on the node, whose network the test itself
// does not have.
const clientEnv = "SANDLANE_HELM_CLIENT"

// opened is what a client prints once all its connections are open.
const opened = "open"

// clients are the kinds of client. Each prints one line of JSON at its end.
var clients = map[string]func(ctx context.Context, args []string) (any, error){
	"sockets":  holdSockets,
	"leaf":     readLeaf,
	"claims":   timeRounds,
	"enforce":  enforce,
	"internet": serveInternet,
}

// runClient runs the client if this process was started as one, and does not return then.
func runClient() {
	role := os.Getenv(clientEnv)
	if role == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	said, err := clients[role](ctx, os.Args[1:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(said)
	}
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// onNode is a running client. It ends when its standard input is closed.
type onNode struct {
	io.Closer
	cmd *exec.Cmd
	out *bufio.Reader
}

// startClient starts a client on the node; it ends with the test.
func (c *cluster) startClient(t *testing.T, role string, args ...string) *onNode {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := c.Command(t.Context(), self, args...)
	cmd.Env = append(cmd.Env, clientEnv+"="+role)
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &onNode{Closer: in, cmd: cmd, out: bufio.NewReader(out)}
}

// open waits until the client has opened all its connections.
func (c *onNode) open(t *testing.T) {
	t.Helper()
	if line, err := c.out.ReadString('\n'); err != nil || line != opened+"\n" {
		t.Fatalf("the client has opened nothing: %q, %v, %v", line, err, c.cmd.Wait())
	}
}

// wait waits for the client's end and reads what it printed.
func (c *onNode) wait(t *testing.T, into any) {
	t.Helper()
	text, err := io.ReadAll(c.out)
	if err := c.cmd.Wait(); err != nil {
		t.Fatalf("the client: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("the client printed %q: %v", text, err)
	}
}
