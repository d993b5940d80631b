package faults

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Fate is what became of a write at the server.
type Fate string

// What becomes of a write.
const (
	OnItsWay  Fate = "on its way"
	NeverSent Fate = "never sent"
	Applied   Fate = "applied"
	Refused   Fate = "refused" // 4xx: a test failed, it exists, it is gone
	Failed    Fate = "failed"  // the real server's own trouble
)

// Strike is one write that met a fault.
type Strike struct {
	Write
	Fault Fault
	At    time.Time
	Fate  Fate
}

// Transport is the RoundTripper of one client. All methods are safe for
// concurrent use.
type Transport struct {
	base http.RoundTripper
	plan Plan

	mu      sync.Mutex // guards what follows; never held over a call or a wait
	calm    bool
	nth     map[Write]int     // by write, Nth and Object left out
	claimer map[string]string // sandbox of the last claim, by pod
	strikes []*Strike
	late    late
}

// New returns a transport that sends by base what the plan lets through.
func New(base http.RoundTripper, plan Plan) *Transport {
	return &Transport{
		base: base, plan: plan, nth: make(map[Write]int), claimer: make(map[string]string),
		late: late{byObject: make(map[string][]*straggler)},
	}
}

// Calm ends the faults; what is late stays so until its time or Flush.
func (t *Transport) Calm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calm = true
}

// Strikes returns what was struck so far.
func (t *Transport) Strikes() []Strike {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Strike, len(t.strikes))
	for i, s := range t.strikes {
		all[i] = *s
	}
	return all
}

// RoundTrip sends a request, or does to it what the plan says.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("faults: read the request: %w", err)
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	object := objectOf(r, body)
	if object == "" {
		return t.base.RoundTrip(r)
	}
	t.overtaken(object, false)
	strike, hold := t.decide(r, object, body)
	if strike == nil {
		answer, err := t.base.RoundTrip(r)
		t.overtaken(object, true)
		return answer, err
	}
	if n := strike.Fault.overtakes(); n >= 0 {
		t.delay(r, body, strike, n)
	}
	answer, err := t.strike(r, strike, hold)
	if strike.Fault.overtakes() < 0 {
		t.overtaken(object, true)
	}
	return answer, err
}

// decide asks the plan; nil lets the request through.
func (t *Transport) decide(r *http.Request, object string, body []byte) (*Strike, time.Duration) {
	kind, sandbox := classify(r, object, body)
	if kind == "" {
		return nil, 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if kind == Claim {
		t.claimer[object] = sandbox
	} else if sandbox == "" {
		sandbox = t.claimer[object]
	}
	w := Write{Kind: kind, Sandbox: sandbox}
	n := t.nth[w]
	t.nth[w]++
	w.Object, w.Nth = object, n
	if t.calm {
		return nil, 0
	}
	d := t.plan(w)
	if d.Fault == None {
		return nil, 0
	}
	s := &Strike{Write: w, Fault: d.Fault, At: time.Now(), Fate: OnItsWay}
	t.strikes = append(t.strikes, s)
	return s, d.Hold
}

func (t *Transport) strike(r *http.Request, s *Strike, hold time.Duration) (*http.Response, error) {
	var answer *http.Response
	switch {
	case s.Fault.overtakes() >= 0:
	case s.Fault.Sent():
		var err error
		if answer, err = t.send(r, s); err != nil {
			return nil, err
		}
	default:
		t.fate(s, NeverSent)
	}
	err := wait(r.Context(), hold)
	if err == nil && s.Fault == Slow {
		return answer, nil
	}
	if answer != nil {
		discard(answer)
	}
	if err != nil {
		return nil, err
	}
	return s.Fault.seen(r)
}

// send passes a write on and notes what became of it.
func (t *Transport) send(r *http.Request, s *Strike) (*http.Response, error) {
	answer, err := t.base.RoundTrip(r)
	switch {
	case err != nil:
		t.fate(s, Failed)
	case answer.StatusCode < 300:
		t.fate(s, Applied)
	case answer.StatusCode < 500 && answer.StatusCode != http.StatusTooManyRequests:
		t.fate(s, Refused)
	default:
		t.fate(s, Failed)
	}
	return answer, err
}

func (t *Transport) fate(s *Strike, f Fate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Fate = f
}

// discard reads an answer that no caller gets, to the end, so that its connection
// can be used again.
func discard(answer *http.Response) {
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
}

func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// seen is what the client gets to see instead of the server's answer.
func (f Fault) seen(r *http.Request) (*http.Response, error) {
	switch f {
	case RefusedBefore:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case ResetBefore, ResetAfter:
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	case Error500Before, Error500After:
		return status(r, http.StatusInternalServerError, "InternalError", 0), nil
	case Error503Before:
		return status(r, http.StatusServiceUnavailable, "ServiceUnavailable", 0), nil
	case Error503After:
		return status(r, http.StatusServiceUnavailable, "ServiceUnavailable", 1), nil
	case ThrottledBefore:
		return status(r, http.StatusTooManyRequests, "TooManyRequests", 1), nil
	}
	return nil, context.DeadlineExceeded
}

// status is an API server's answer of that code.
func status(r *http.Request, code int, reason string, retryAfter int) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"injected","reason":%q,"code":%d}`, reason, code)
	answer := &http.Response{
		StatusCode: code, Status: strconv.Itoa(code) + " " + http.StatusText(code),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   io.NopCloser(bytes.NewReader([]byte(body))), ContentLength: int64(len(body)), Request: r,
	}
	if retryAfter > 0 {
		answer.Header.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	return answer
}
