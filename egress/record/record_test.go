package record

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// The lines of one sandbox are found among those of a log, as they were added.
func TestLinesOfASandbox(t *testing.T) {
	var log bytes.Buffer
	log.WriteString("time=2026-11-28 level=INFO msg=\"egress connection\" sandbox=s1\n{\"msg\":\"started\",\"sandbox\":\"s1\"}\n{broken\n")
	w := NewWriter(&log, 1, func() { t.Error("a record was lost") })
	at := time.Date(2026, 11, 28, 1, 2, 3, 0, time.UTC)
	w.Add(Record{Time: at, Sandbox: "s1", Host: "api.example", Port: 443, Verdict: "passed", Sent: 5, Received: 7})
	w.Add(Record{Time: at, Sandbox: "s10", Host: "api.example", Port: 443, Verdict: "passed"})
	w.Add(Record{Time: at, Sandbox: "s1", Host: strings.Repeat("a\n", 200), Port: 80, Verdict: "unread"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	found := Of(log.Bytes(), "s1")
	if len(found) != 2 || found[0].Host != "api.example" || found[0].Received != 7 || !found[0].Time.Equal(at) || len(found[1].Host) > 260 {
		t.Fatalf("%+v", found)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 6 {
		t.Errorf("%d lines: %s", lines, log.String())
	}
}

// No share is no record, and half of them about half.
func TestShare(t *testing.T) {
	for share, want := range map[float64][2]int{0: {0, 0}, 0.5: {300, 700}, 1: {1000, 1000}} {
		var log bytes.Buffer
		w := NewWriter(&log, share, func() {})
		for range 1000 {
			w.Add(Record{})
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "\n"); n < want[0] || n > want[1] {
			t.Errorf("share %v: %d of 1000", share, n)
		}
	}
}

// broken takes no line.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("full") }

// What cannot be written delays nothing, and is counted.
func TestLostRecords(t *testing.T) {
	lost := 0
	w := NewWriter(broken{}, 1, func() { lost++ })
	for range waiting + 3 {
		w.Add(Record{})
	}
	if lost != 3 {
		t.Errorf("%d lost before anything was written", lost)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Start(ctx); err != nil || lost != waiting+3 {
		t.Errorf("%d lost, %v", lost, err)
	}
}

// What a sandbox writes as a host reaches a terminal as text alone.
func TestHostIsNoCommand(t *testing.T) {
	for host, want := range map[string]string{"api.example": "\tapi.example:80\t", "a\x1b[2J\tb": "\t\"a\\x1b[2J\\tb\":80\t"} {
		if got := (Record{Host: host, Port: 80}).String(); !strings.Contains(got, want) {
			t.Errorf("%q is shown as %q, want %q in it", host, got, want)
		}
	}
}
