package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Bounds and precision of the histograms: a microsecond to ten minutes.
const (
	lowest, highest = 1, int64(10 * time.Minute / time.Microsecond)
	figures         = 3
	dialTimeout     = 5 * time.Second
	answerTimeout   = 30 * time.Second
)

// connection is one of a round's connections; its goroutine alone uses it.
type connection struct {
	t       Target
	next    *atomic.Int64 // over all connections: which request is next
	latency *hdr.Histogram
	good    int64
	bad     int64
}

// generate runs all connections for d. With a rate, each has its share of it, and
// they begin one after the other so that their requests are spread evenly.
func generate(ctx context.Context, t Target, d time.Duration, rate float64) (Report, error) {
	if len(t.Hosts) == 0 || t.Connections < 1 {
		return Report{}, errors.New("no host to name or no connection")
	}
	var (
		next  atomic.Int64
		all   sync.WaitGroup
		conns = make([]*connection, t.Connections)
		errs  = make([]error, t.Connections)
		start = time.Now()
	)
	for i := range conns {
		c := &connection{t: t, next: &next, latency: hdr.New(lowest, highest, figures)}
		conns[i] = c
		s := schedule{end: start.Add(d)}
		if rate > 0 {
			s.every = time.Duration(float64(t.Connections) / rate * float64(time.Second))
			s.due = start.Add(s.every * time.Duration(i) / time.Duration(t.Connections))
		}
		all.Go(func() { errs[i] = c.run(ctx, s) })
	}
	all.Wait()
	r := Report{Took: time.Since(start)}
	sum := hdr.New(lowest, highest, figures)
	for _, c := range conns {
		sum.Merge(c.latency)
		r.Requests, r.Errors = r.Requests+c.good, r.Errors+c.bad
	}
	at := func(q float64) time.Duration { return time.Duration(sum.ValueAtQuantile(q)) * time.Microsecond }
	r.P50, r.P99, r.P999 = at(50), at(99), at(99.9)
	return r, errors.Join(errs...)
}

// schedule says when a connection sends. Without every it sends when it can.
type schedule struct {
	due, end time.Time
	every    time.Duration
}

// wait waits until the next request is due and returns that time. If the time has passed, it
// returns at once; the latency of the request counts from the returned time all the same.
// False means that the round is over.
func (s *schedule) wait(ctx context.Context) (from time.Time, more bool) {
	if s.every == 0 {
		now := time.Now()
		return now, now.Before(s.end) && ctx.Err() == nil
	}
	from = s.due
	s.due = s.due.Add(s.every)
	if !from.Before(s.end) {
		return from, false
	}
	if early := time.Until(from); early > 0 {
		timer := time.NewTimer(early)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return from, ctx.Err() == nil
}

func (c *connection) run(ctx context.Context, s schedule) error {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", c.t.Address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	// The round must end even if the server hangs.
	if err := conn.SetDeadline(s.end.Add(answerTimeout)); err != nil {
		return err
	}
	in := bufio.NewReaderSize(conn, 16<<10)
	var request []byte
	for {
		from, more := s.wait(ctx)
		if !more {
			return nil
		}
		host, more := c.host()
		if !more {
			return nil
		}
		request = append(append(append(request[:0], "GET / HTTP/1.1\r\nHost: "...), host...), "\r\n\r\n"...)
		if _, err := conn.Write(request); err != nil {
			c.bad++
			return fmt.Errorf("send a request: %w", err)
		}
		status, err := readAnswer(in)
		if err != nil {
			c.bad++
			return fmt.Errorf("read an answer: %w", err)
		}
		if status/100 != 2 {
			c.bad++
			continue
		}
		c.good++
		_ = c.latency.RecordValue(max(time.Since(from).Microseconds(), lowest)) // a latency above highest has met the deadline
	}
}

// host names the next host; false if the round has reached its limit.
func (c *connection) host() (string, bool) {
	n := c.next.Add(1)
	if c.t.Limit > 0 && n > c.t.Limit {
		return "", false
	}
	if len(c.t.Rare) > 0 && c.t.RareEvery > 0 && n%int64(c.t.RareEvery) == 0 {
		return c.t.Rare[(int64(c.t.RareFrom)+n/int64(c.t.RareEvery)-1)%int64(len(c.t.Rare))], true
	}
	return c.t.Hosts[n%int64(len(c.t.Hosts))], true
}

var contentLength = []byte("content-length:")

// readAnswer reads one answer and returns its status.
func readAnswer(in *bufio.Reader) (status int, err error) {
	length := -1
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first:
			if len(line) < 12 {
				return 0, fmt.Errorf("status line %q", line)
			}
			if status, err = strconv.Atoi(string(line[9:12])); err != nil {
				return 0, fmt.Errorf("status line %q: %w", line, err)
			}
		case len(line) == 0:
			if length < 0 {
				return 0, errors.New("an answer without a Content-Length")
			}
			_, err := io.CopyN(io.Discard, in, int64(length))
			return status, err
		case len(line) > len(contentLength) && bytes.EqualFold(line[:len(contentLength)], contentLength):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(contentLength):]))); err != nil {
				return 0, fmt.Errorf("header %q: %w", line, err)
			}
		}
	}
}
