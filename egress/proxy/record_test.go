package proxy

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandlane/sandlane/egress/names"
	"github.com/sandlane/sandlane/egress/record"
)

// recorded waits for one more record, and returns it.
func (w *world) recorded(t *testing.T, after int) record.Record {
	t.Helper()
	for t.Context().Err() == nil {
		w.mu.Lock()
		all := slices.Clone(w.records)
		w.mu.Unlock()
		if len(all) > after {
			return all[after]
		}
		runtime.Gosched()
	}
	t.Fatal("nothing was recorded")
	return record.Record{}
}

// Each connection has a record of whose it was, what it was for and what became of it, and
// none has a byte of what passed.
func TestRecords(t *testing.T) {
	w := newWorld(t, nil)
	w.addrs["closed.example"] = "10.0.0.1"
	r := ruled("Bearer ${e2b.secrets.key}")
	r.AllowNames = append(r.AllowNames, "closed.example", "*.wild.example")
	r.Headers["*.wild.example"] = r.Headers["ruled.example"]
	w.secrets["team/key"] = "sk-not-in-the-sandbox"
	w.claim(t, 1, "c1", r)
	w.claim(t, 2, "c2", names.Rules{})
	fetch := func(url string) func() {
		return func() {
			c := w.client(t, 1, false)
			if answer, err := c.Do(request(t, "POST", url+"/path-not-recorded", strings.NewReader("body"))); err == nil {
				answer.Body.Close()
			}
			c.CloseIdleConnections()
		}
	}
	for i, c := range []struct {
		do   func()
		want string
	}{
		{fetch("https://api.example"), "team s-c1 c1 127.0.1.1 api.example:443 by  passed 0/0"},
		{fetch("https://ruled.example"), "team s-c1 c1 127.0.1.1 ruled.example:443 by ruled.example intercepted 0/1"},
		{fetch("https://x.wild.example"), "team s-c1 c1 127.0.1.1 x.wild.example:443 by *.wild.example intercepted 0/1"},
		{fetch("http://ruled.example"), "team s-c1 c1 127.0.1.1 ruled.example:80 by  passed 0/1"},
		{fetch("http://denied.example"), "team s-c1 c1 127.0.1.1 denied.example:80 by  denied 1/1"},
		{fetch("https://denied.example"), "team s-c1 c1 127.0.1.1 denied.example:443 by  denied 0/0"},
		{fetch("https://closed.example"), "team s-c1 c1 127.0.1.1 closed.example:443 by  closed 0/0"},
		{fetch("https://forged.example"), "team s-c1 c1 127.0.1.1 forged.example:443 by forged.example failed 1/1"},
		{func() { answer(dialFrom(t, 1, w.o.Listeners.HTTP), "GET / HTTP/1.1\r\n\r\n") }, "team s-c1 c1 127.0.1.1 :80 by  unread 0/0"},
		{func() {
			if c, err := tryFrom(t, 3, w.o.Listeners.HTTPS); err == nil {
				answer(c, "")
			}
		}, "   127.0.1.3 :443 by  unknown 0/0"},
		{func() { w.ask(t, 1, "denied.example", dnsmessage.TypeA) }, "team s-c1 c1 127.0.1.1 denied.example:53 by  denied 0/0"},
	} {
		c.do()
		got := w.recorded(t, i)
		text := fmt.Sprintf("%s %s %s %s %s:%d by %s %s %d/%d", got.Namespace, got.Sandbox, got.Claim, got.From, got.Host, got.Port, got.Rule, got.Verdict, got.Refused, got.Requests)
		if text != c.want {
			t.Errorf("%s, want %s", text, c.want)
		}
		served := got.Refused == 0 && (got.Verdict == verdictPassed || got.Verdict == verdictIntercepted)
		if got.Port != portNames && (got.Time.IsZero() || got.Seconds <= 0) || served != (got.Sent > 4) || served != (got.Received > 4) {
			if got.Host != "forged.example" { // a handshake that failed has bytes too
				t.Errorf("%s: %d bytes sent, %d received, from %s for %f s", text, got.Sent, got.Received, got.Time, got.Seconds)
			}
		}
		if all := fmt.Sprintf("%+v", got); strings.Contains(all, "sk-not") || strings.Contains(all, "path-not") || strings.Contains(all, "Bearer") {
			t.Errorf("%s", all)
		}
	}
}
