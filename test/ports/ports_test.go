package ports

import (
	"fmt"
	"net"
	"testing"
)

// A free port can be listened on, is none that an outgoing connection can take, and another each time.
func TestFree(t *testing.T) {
	seen := map[int]bool{}
	for range 500 {
		port, err := Free()
		if err != nil {
			t.Fatal(err)
		}
		if port < first || port > last {
			t.Fatalf("port %d", port)
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if seen[port] {
			t.Fatalf("port %d twice", port)
		}
		seen[port] = true
	}
}
