package relay

import (
	"encoding/binary"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// kernelAnswers skips a test where the kernel cannot be asked which sockets listen.
func kernelAnswers(t *testing.T) (asked []netip.AddrPort) {
	t.Helper()
	asked, err := diag()
	if err != nil {
		t.Skipf("this kernel cannot be asked: %v", err)
	}
	return asked
}

// The kernel answers what its files have, of both families and without connections.
func TestDiagSeesWhatTheFilesHave(t *testing.T) {
	var listening []netip.AddrPort
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"} {
		network := "tcp6"
		if address[0] != '[' {
			network = "tcp4"
		}
		l, err := net.Listen(network, address)
		if err != nil && network == "tcp6" {
			continue // a machine without IPv6
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		listening = append(listening, l.Addr().(*net.TCPAddr).AddrPort())
	}
	c, err := net.Dial("tcp", listening[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	asked := kernelAnswers(t)
	read, err := files()
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range listening {
		if !slices.Contains(asked, at) || !slices.Contains(read, at) {
			t.Errorf("%v listens: the kernel says %v, the files %v", at, asked, read)
		}
	}
	if at := c.LocalAddr().(*net.TCPAddr).AddrPort(); slices.Contains(asked, at) {
		t.Errorf("%v is a connection, and the kernel is taken to say that it listens", at)
	}
}

// An idle sandbox scans twice a second: a scan takes next to no processor, however many
// connections the machine has a table for.
func TestScanIsCheap(t *testing.T) {
	kernelAnswers(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	spent := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	const scans = 20
	before := spent()
	for range scans {
		if _, err := scan(); err != nil {
			t.Fatal(err)
		}
	}
	if each := (spent() - before) / scans; each > 2*time.Millisecond {
		t.Errorf("a scan takes %v of a processor", each)
	}
}

// What is cut short, or does not listen, is left out.
func TestParseDiag(t *testing.T) {
	answer := make([]byte, diagAnswer)
	answer[0], answer[diagState] = unix.AF_INET6, unix.BPF_TCP_LISTEN
	binary.BigEndian.PutUint16(answer[diagPort:], 5000)
	mapped := netip.MustParseAddr("::ffff:127.0.0.1").As16()
	copy(answer[diagAddress:], mapped[:])
	if at, ok := parseDiag(answer); !ok || at != netip.MustParseAddrPort("127.0.0.1:5000") {
		t.Errorf("%v, %v", at, ok)
	}
	if at, ok := parseDiag(answer[:diagAnswer-1]); ok {
		t.Errorf("a short answer is %v", at)
	}
	answer[diagState] = unix.BPF_TCP_ESTABLISHED
	if at, ok := parseDiag(answer); ok {
		t.Errorf("a connection is %v", at)
	}
}
