package chaos

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// steady sends requests for one known sandbox at a steady rate through one gateway, and
// counts the answers. It uses little CPU: it has one connection and one encoded request, and
// of an answer it reads only the status and searches for the pod.
type steady struct {
	id      string
	gateway int
	address string
	request []byte
	want    []byte // what every answer must contain: its pod

	conn net.Conn
	in   *bufio.Reader
	body bytes.Buffer

	mu     sync.Mutex
	ok     int
	failed []failure
}

// failure is a request that was not answered by the sandbox's pod.
type failure struct {
	begin, end time.Time
	status     int // 0: no answer
	what       string
}

const (
	// wireTimeout is how long a request may take: longer than any limit in the way.
	wireTimeout = 15 * time.Second
	// keptFailures bounds what one client keeps.
	keptFailures = 5000
)

func newSteady(id string, gateway int, g stack.Gateway, podUID string) *steady {
	address := strings.TrimPrefix(g.URL, "http://")
	return &steady{
		id: id, gateway: gateway, address: address, want: []byte(`"podUID":"` + podUID + `"`),
		request: fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: %s\r\nX-Sandbox-Id: %s\r\nX-Sandbox-Port: 8000\r\n\r\n", address, id),
	}
}

// run sends a request at each tick until ctx ends. It skips a tick while the last request is
// under way.
func (s *steady) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	defer s.hangUp()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		begin := time.Now()
		status, err := s.ask()
		s.mu.Lock()
		if err == nil {
			s.ok++
		} else if len(s.failed) < keptFailures {
			s.failed = append(s.failed, failure{begin, time.Now(), status, err.Error()})
		}
		s.mu.Unlock()
	}
}

// ask sends one request. It returns nil if the sandbox's pod has answered.
func (s *steady) ask() (status int, err error) {
	if s.conn == nil {
		if s.conn, err = net.DialTimeout("tcp", s.address, wireTimeout); err != nil {
			return 0, err
		}
		s.in = bufio.NewReaderSize(s.conn, 4096)
	}
	defer func() {
		if status == 0 {
			s.hangUp()
		}
	}()
	if err := s.conn.SetDeadline(time.Now().Add(wireTimeout)); err != nil {
		return 0, err
	}
	if _, err := s.conn.Write(s.request); err != nil {
		return 0, err
	}
	res, err := http.ReadResponse(s.in, nil)
	if err != nil {
		return 0, err
	}
	s.body.Reset()
	_, err = s.body.ReadFrom(res.Body)
	_ = res.Body.Close()
	switch {
	case err != nil:
		return 0, err
	case res.StatusCode != http.StatusOK:
		err = fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(s.body.Bytes()))
	case !bytes.Contains(s.body.Bytes(), s.want):
		err = fmt.Errorf("not its pod: %s", s.body.Bytes())
	}
	if res.Close {
		s.hangUp()
	}
	return res.StatusCode, err
}

func (s *steady) hangUp() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

// crowd has all steady clients of a test.
type crowd struct {
	all    []*steady
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newCrowd(t *testing.T) *crowd {
	c := &crowd{}
	c.ctx, c.cancel = context.WithCancel(t.Context())
	t.Cleanup(c.stop)
	return c
}

// add starts one more client, which sends requests until stop.
func (c *crowd) add(s *steady, every time.Duration) {
	c.all = append(c.all, s)
	c.done.Go(func() { s.run(c.ctx, every) })
}

func (c *crowd) stop() { c.cancel(); c.done.Wait() }

// counted returns how many requests were answered right.
func (c *crowd) counted() (n int) {
	for _, s := range c.all {
		s.mu.Lock()
		n += s.ok
		s.mu.Unlock()
	}
	return n
}
