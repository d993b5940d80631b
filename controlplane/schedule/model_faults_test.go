package schedule

import (
	"context"
	"errors"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/kubeclient/writes"
)

// call is one of a scheduler's calls to the API server.
type call struct {
	verb string // claim, stop, get or pool
	pod  string
	// apply makes the call, now or later, and returns its outcome. It may be called
	// by another goroutine, after the client has given up.
	apply func() error
	// invalid is apply of a claim that the API server finds invalid, after its tests.
	invalid func() error
}

// callFault is one way in which the API server, or the way to it, treats a call.
// do may apply it, and returns what the client sees.
type callFault struct {
	name  string
	reads bool // it may also befall a read
	do    func(m *model, c call) error
}

var errReset = errors.New("connection reset by peer")

var callFaults = []callFault{
	{"lost, never applied", true, func(*model, call) error { return errReset }},
	{"lost, applied before", false, func(_ *model, c call) error { _ = c.apply(); return context.DeadlineExceeded }},
	{"lost, applied after the answer", false, func(m *model, c call) error {
		m.later(c.apply)
		return context.DeadlineExceeded
	}},
	{"lost, applied after the next read", false, func(m *model, c call) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.afterRead[c.pod] = append(m.afterRead[c.pod], c.apply)
		return context.DeadlineExceeded
	}},
	{"500, not applied", true, func(*model, call) error {
		return statusError(500, metav1.StatusReasonInternalError, nil)
	}},
	{"500, applied", false, func(_ *model, c call) error {
		_ = c.apply()
		return statusError(500, metav1.StatusReasonInternalError, nil)
	}},
	{"409", false, func(*model, call) error { return statusError(409, metav1.StatusReasonConflict, nil) }},
	{"422, a test failed", false, func(*model, call) error { return refusal() }},
	{"422, invalid", false, func(m *model, c call) error { return m.invalid(c) }},
	{"403", false, func(*model, call) error { return statusError(403, metav1.StatusReasonForbidden, nil) }},
	{"429", true, func(*model, call) error { return tooMany(1) }},
	{"not sent", true, func(*model, call) error {
		return &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}},
	{"slow", true, func(m *model, c call) error { <-time.After(m.pace.slow); return c.apply() }},
}

// invalid answers that the call's object is invalid. A claim stays invalid whichever
// gateway sends it, so no other one's may succeed after it.
func (m *model) invalid(c call) error {
	if c.verb != "claim" {
		return invalidImage()
	}
	m.mu.Lock()
	q := m.owner[c.pod]
	m.mu.Unlock()
	if q != nil {
		q.following.Lock()
		defer q.following.Unlock()
	}
	err := c.invalid()
	if q != nil && writes.Judge(err) == writes.Invalid {
		q.never = true
	}
	return err
}

// answer is what the API server says to a call: the next number drawn says what
// befalls it, which is nothing for half of the numbers.
func (m *model) answer(c call) error {
	m.mu.Lock()
	if c.verb == "pool" || m.calm {
		m.mu.Unlock()
		return m.read(c)
	}
	if time.Now().Before(m.busy) {
		m.met(m.owner[c.pod], "API server busy")
		m.mu.Unlock()
		return tooMany(1)
	}
	n := m.faults[m.calls%len(m.faults)]
	m.calls++
	if n >= len(callFaults) || c.verb == "get" && !callFaults[n].reads {
		m.mu.Unlock()
		return m.read(c)
	}
	f := callFaults[n]
	m.met(m.owner[c.pod], f.name)
	m.mu.Unlock()
	return f.do(m, c)
}

// read answers truly. After a read come the writes that waited for one.
func (m *model) read(c call) error {
	err := c.apply()
	if c.verb == "get" {
		m.mu.Lock()
		late := m.afterRead[c.pod]
		delete(m.afterRead, c.pod)
		m.mu.Unlock()
		for _, write := range late {
			_ = write()
		}
	}
	return err
}

// later applies a write that its client has given up.
func (m *model) later(apply func() error) {
	m.lates.Add(1)
	time.AfterFunc(m.pace.late, func() { defer m.lates.Done(); _ = apply() })
}

// flush applies what still waits for a read.
func (m *model) flush() {
	m.mu.Lock()
	late := m.afterRead
	m.afterRead = map[string][]func() error{}
	m.mu.Unlock()
	for _, writes := range late {
		for _, write := range writes {
			_ = write()
		}
	}
}
