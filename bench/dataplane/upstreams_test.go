package dataplane

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/sandlane/sandlane/bench/suite"
	serve "github.com/sandlane/sandlane/bench/upstream"
)

// TestMain also makes the test binary the upstream program, as bench is: with the argument
// "upstream".
func TestMain(m *testing.M) {
	if i := slices.Index(os.Args, "upstream"); i == 1 {
		os.Exit(upstreamMain(os.Args[i+1:]))
	}
	os.Exit(m.Run())
}

func upstreamMain(args []string) int {
	// Few files, so that the test needs few connections.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: upstreamFiles, Max: upstreamFiles}); err != nil {
		return 1
	}
	port, err := strconv.Atoi(args[1]) // --port N
	if err != nil {
		return 1
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil || serve.Serve(l) != nil {
		return 1
	}
	return 0
}

const (
	upstreamFiles = 64
	held          = 40 // connections of a side: they fit one process, those of two do not
)

// Each side's connections end in a process of its own. With one process for all sides, the
// open connections of an idle side and of a measured one reached its limit of open files.
func TestEachSideHasAnUpstream(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e := &suite.Env{Self: self, Dir: t.TempDir(), Out: io.Discard}
	u, err := startUpstreams(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	defer u.stop()
	for name, port := range map[string]int{"plain": u.plain.port, "the floor": u.floor.port, "sandlane": u.ours.port} {
		for n := range held {
			c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Fatalf("connection %d to the upstream of %s: %v", n, name, err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\n\r\n"); err != nil {
				t.Fatalf("request %d to the upstream of %s: %v", n, name, err)
			}
			if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
				t.Fatalf("request %d to the upstream of %s: %q, %v", n, name, line, err)
			}
		}
	}
}
