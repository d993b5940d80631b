package schedule

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// callFault is one way in which the API server, or the way to it, treats a call.
// do gets the call's effect, which it may apply, and returns what the client sees.
type callFault struct {
	name  string
	reads bool // it may also befall a read
	// late says that the API server comes to it after the tests of the patch, so
	// that a claim only meets it on an idle pod.
	late bool
	do   func(m *model, pod string, apply func() error) error
}

var errReset = errors.New("connection reset by peer")

var callFaults = []callFault{
	{"lost, never applied", true, false, func(*model, string, func() error) error { return errReset }},
	{"lost, applied before", false, false, func(_ *model, _ string, apply func() error) error { _ = apply(); return context.DeadlineExceeded }},
	{"lost, applied after the answer", false, false, func(m *model, _ string, apply func() error) error {
		m.later(7*time.Second, apply)
		return context.DeadlineExceeded
	}},
	{"lost, applied after the next read", false, false, func(m *model, pod string, apply func() error) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.afterRead[pod] = append(m.afterRead[pod], apply)
		return context.DeadlineExceeded
	}},
	{"500, not applied", true, false, func(*model, string, func() error) error {
		return statusError(500, metav1.StatusReasonInternalError, nil)
	}},
	{"500, applied", false, false, func(_ *model, _ string, apply func() error) error {
		_ = apply()
		return statusError(500, metav1.StatusReasonInternalError, nil)
	}},
	{"409", false, false, func(*model, string, func() error) error { return statusError(409, metav1.StatusReasonConflict, nil) }},
	{"422, a test failed", false, false, func(*model, string, func() error) error { return refusal() }},
	{"422, invalid", false, true, func(*model, string, func() error) error { return invalidImage() }},
	{"403", false, true, func(*model, string, func() error) error { return statusError(403, metav1.StatusReasonForbidden, nil) }},
	{"429", true, false, func(*model, string, func() error) error { return tooMany(1) }},
	{"not sent", true, false, func(*model, string, func() error) error {
		return &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}},
	{"slow", true, false, func(_ *model, _ string, apply func() error) error { <-time.After(3 * time.Second); return apply() }},
}

// answer is the fake API server's fault function: the next number drawn says
// what befalls the call, which is nothing for half of the numbers.
func (m *model) answer(call string, apply func() error) error {
	verb, pod, _ := strings.Cut(call, " ")
	m.mu.Lock()
	if verb == "pool" || m.calm {
		m.mu.Unlock()
		return m.read(verb, pod, apply)
	}
	if time.Now().Before(m.busy) {
		m.met(m.owner[pod], "API server busy")
		m.mu.Unlock()
		return tooMany(1)
	}
	n := m.faults[m.calls%len(m.faults)]
	m.calls++
	if n >= len(callFaults) || verb == "get" && !callFaults[n].reads || verb == "claim" && callFaults[n].late && !m.api.isIdle(pod) {
		m.mu.Unlock()
		return m.read(verb, pod, apply)
	}
	f := callFaults[n]
	m.met(m.owner[pod], f.name)
	m.mu.Unlock()
	return f.do(m, pod, apply)
}

// read answers truly. After a read come the writes that waited for one.
func (m *model) read(verb, pod string, apply func() error) error {
	err := apply()
	if verb == "get" {
		m.mu.Lock()
		late := m.afterRead[pod]
		delete(m.afterRead, pod)
		m.mu.Unlock()
		for _, write := range late {
			_ = write()
		}
	}
	return err
}

// later applies a write that its client has given up.
func (m *model) later(d time.Duration, apply func() error) {
	time.AfterFunc(d, func() { _ = apply() })
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
