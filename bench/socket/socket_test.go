package socket

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sandlane/sandlane/bench/suite"
)

// The server answers each request for a sandbox that it has with a route, and counts
// its allocations.
func TestServeAndAsk(t *testing.T) {
	const sandboxes = 20
	socket := filepath.Join(t.TempDir(), "s")
	ask, questions := io.Pipe()
	answers, said := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stop()
	serving.Go(func() {
		if err := Serve(ctx, Options{Socket: socket, Routes: sandboxes}, ask, said); err != nil {
			t.Error(err)
		}
	})
	defer questions.Close()
	if err := suite.Await(t.Context(), suite.Answers("unix", socket)); err != nil {
		t.Fatal(err)
	}
	requests := make([][]byte, sandboxes)
	for i := range requests {
		var err error
		if requests[i], err = request(fmt.Sprintf("%d-b%d.localhost", port, i)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := dial(socket, requests)
	if err != nil {
		t.Fatal(err)
	}
	defer c.conn.Close()
	if r, err := c.once(t.Context(), 4); err != nil || r.Requests != sandboxes {
		t.Errorf("%d answers, %v", r.Requests, err)
	}
	if r, err := c.round(t.Context(), 4, 20*time.Millisecond); err != nil || r.Requests == 0 {
		t.Errorf("%d answers, %v", r.Requests, err)
	}
	if _, err := questions.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	var allocated int64
	if _, err := fmt.Fscan(answers, &allocated); err != nil || allocated < sandboxes {
		t.Errorf("%d allocations, %v", allocated, err)
	}
}
