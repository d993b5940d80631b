package sandboxd

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// The address of a pod, which a test's network alone has.
const (
	podAddress = "198.51.100.2"
	podEnv     = "SANDBOXD_TEST_POD"
)

// inPod runs the calling test again, in a network namespace with a loopback and the
// pod's address, and reports whether this is that process already.
func inPod(t *testing.T) bool {
	t.Helper()
	if os.Getenv(podEnv) == "" {
		if os.Geteuid() != 0 {
			t.Skip("a network of its own needs root")
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), podEnv+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return false
	}
	lo, err := netlink.LinkByName("lo")
	address, err2 := netlink.ParseAddr(podAddress + "/32")
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(netlink.LinkSetUp(lo), netlink.AddrAdd(lo, address)); err != nil {
		t.Fatal(err)
	}
	return true
}

// server is one of a user: it answers what it hears until the client is done, and then
// its own name.
func server(t *testing.T, address, name string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn)
				_, _ = conn.Write([]byte(name))
			}()
		}
	}()
	return listener
}

// ask sends text to a port of the pod and returns all of the answer.
func ask(port, text string) (string, error) {
	conn, err := net.Dial("tcp", net.JoinHostPort(podAddress, port))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte(text)); err != nil {
		return "", err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

func answers(port, name string) func() bool {
	return func() bool {
		got, err := ask(port, "hello ")
		return err == nil && got == "hello "+name
	}
}

func refuses(port string) func() bool {
	return func() bool {
		_, err := ask(port, "")
		return errors.Is(err, syscall.ECONNREFUSED)
	}
}

// A server that listens on loopback is reached by the pod's address, and not longer
// than it is there.
func TestLoopbackServersAreReached(t *testing.T) {
	if !inPod(t) {
		return
	}
	newAgent(t, Options{Address: ":0", Relay: true})
	four, six := server(t, "127.0.0.1:5000", "four"), server(t, "[::1]:5001", "six")
	server(t, "127.0.0.53:5002", "not ours")
	server(t, "0.0.0.0:5003", "all")
	eventually(t, "IPv4", answers("5000", "four"))
	eventually(t, "IPv6", answers("5001", "six"))
	if !answers("5003", "all")() || !refuses("5002")() {
		t.Error("what is not the relay's is relayed")
	}

	// A stream goes both ways at once, and its end comes through as an end.
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	if got, err := ask("5000", string(data)); err != nil || got != string(data)+"four" {
		t.Errorf("%d bytes of %d, %v", len(got), len(data), err)
	}

	// A connection outlives the listener; the port does not, and can be had again by
	// all addresses.
	conn, err := net.Dial("tcp", podAddress+":5000")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_, _ = four.Close(), six.Close()
	eventually(t, "nothing listens", func() bool { return refuses("5000")() && refuses("5001")() })
	server(t, "0.0.0.0:5000", "all")
	if !answers("5000", "all")() {
		t.Error("the port is not the new server's")
	}
	if _, err := conn.Write([]byte("y")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Errorf("the connection ended with the listener: %v", err)
	}
}

// The end of sandboxd ends what is relayed, and it returns.
func TestRelayEnds(t *testing.T) {
	if !inPod(t) {
		return
	}
	a := newAgent(t, Options{Address: ":0", Relay: true})
	server(t, "127.0.0.1:5000", "")
	eventually(t, "it is reached", answers("5000", ""))
	conn, err := net.Dial("tcp", podAddress+":5000")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	a.stop()
	if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	if !refuses("5000")() {
		t.Error("the port is still relayed")
	}
}

// Without the option nothing is.
func TestNoRelay(t *testing.T) {
	if !inPod(t) {
		return
	}
	newAgent(t, Options{Address: ":0"})
	listener := server(t, "127.0.0.1:5000", "")
	eventually(t, "the server answers", func() bool {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	if !refuses("5000")() {
		t.Error("it is reached")
	}
}

// A sandbox whose network is the machine's must not relay the machine's servers.
func TestRelayFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want bool
	}{
		{nil, true}, {[]string{"-relay-loopback=false"}, false}, {[]string{"-home", t.TempDir()}, false},
		{[]string{"-relay-loopback", "-home", t.TempDir()}, false},
	} {
		if o, _, err := parse(c.args, io.Discard); err != nil || o.Relay != c.want {
			t.Errorf("%v: %v, %v, want %v", c.args, o.Relay, err, c.want)
		}
	}
}
