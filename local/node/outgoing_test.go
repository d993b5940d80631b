package node

import (
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandlane/sandlane/local/node/network"
)

// A pod opens no connection to the machine, whose servers on all addresses would
// answer it, and the machine opens connections to the pod.
func TestPodsReachNoServerOfTheMachine(t *testing.T) {
	n := startNode(t, IsolationFull)
	n.create(t, echoPod("a"))
	pod := n.await(t, "a", "is ready", isReady)
	port, heard := listenEverywhere(t)
	gateway := network.GatewayOf(n.opts.Subnet).String()
	for _, c := range []struct{ what, script string }{
		// timeout(1) would exit with 124
		{"TCP is refused at once", "timeout 10 bash -c '</dev/tcp/" + gateway + "/" + port + "'; test $? = 1"},
		{"from the pod's own address", `! python3 -c 'import socket; socket.create_connection(("` + gateway + `", ` + port + `), 10, ("` + pod.Status.PodIP + `", 0))'`},
		{"UDP is refused", "! bash -c 'echo x > /dev/udp/" + gateway + "/" + port + "'"},
		{"itself by loopback", "timeout 10 bash -c '</dev/tcp/127.0.0.1/8000'"},
		{"itself by its address", "timeout 10 bash -c '</dev/tcp/" + pod.Status.PodIP + "/8000'"},
	} {
		if code, out := n.exec(t, "a", "bash", "-c", c.script); code != 0 {
			t.Errorf("%s: %q exits with %d: %s", c.what, c.script, code, out)
		}
	}
	if got := heard(); got != "" {
		t.Errorf("the machine's servers on all addresses heard%s", got)
	}
	if _, err := ask(t.Context(), pod.Status.PodIP); err != nil {
		t.Errorf("the machine does not reach the pod: %v", err)
	}
}

// listenEverywhere serves one port of all the machine's addresses, by TCP and UDP.
// heard says what came until then, after a datagram of the test's own, which no
// earlier one can follow.
func listenEverywhere(t *testing.T) (port string, heard func() string) {
	t.Helper()
	tcp, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tcp.Close() })
	port = strconv.Itoa(tcp.Addr().(*net.TCPAddr).Port)
	udp, err := net.ListenPacket("udp4", "0.0.0.0:"+port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = udp.Close() })
	var connected atomic.Int32
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			connected.Add(1)
			_ = c.Close()
		}
	}()
	return port, func() (out string) {
		own, err := net.Dial("udp4", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = own.Close() }()
		if _, err := own.Write([]byte("end")); err != nil {
			t.Fatal(err)
		}
		_ = udp.SetReadDeadline(time.Now().Add(10 * time.Second))
		raw := make([]byte, 10)
		for {
			n, from, err := udp.ReadFrom(raw)
			if err != nil {
				t.Fatal(err)
			}
			if string(raw[:n]) == "end" {
				break
			}
			out += " a datagram from " + from.String()
		}
		if n := connected.Load(); n > 0 {
			out += fmt.Sprintf(" %d connections", n)
		}
		return out
	}
}
