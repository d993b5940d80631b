package process

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/local/node/network"
)

// eagerStart is the first wait between probes of a container that never
// answered yet; it doubles up to the probe's period. A kubelet always waits
// the period; a pool that warms up should not.
const eagerStart = 20 * time.Millisecond

// Target is where probes and hooks go.
type Target struct {
	Net  network.Pod
	Proc *Process
	Spec *corev1.Container
}

// Probe runs one probe until ctx is done and reports each change of its
// verdict: true after successThreshold successes, false after failureThreshold
// failures. An eager probe is tried more often until its first success, and
// fails once failureThreshold periods have passed without one.
func (t Target) Probe(ctx context.Context, p *corev1.Probe, eager bool, report func(ok bool, err error)) {
	period := time.Duration(max(p.PeriodSeconds, 1)) * time.Second
	timeout := time.Duration(max(p.TimeoutSeconds, 1)) * time.Second
	if !backoff.Sleep(ctx, time.Duration(p.InitialDelaySeconds)*time.Second) {
		return
	}
	begun, seen, eagerly := time.Now(), false, backoff.Doubling(eagerStart, period)
	var successes, failures int32
	for {
		err := probeOnce(ctx, t, &p.ProbeHandler, timeout)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			successes, failures, seen = successes+1, 0, true
			if successes >= max(p.SuccessThreshold, 1) {
				report(true, nil)
			}
		} else {
			successes, failures = 0, failures+1
			early := eager && !seen && time.Since(begun) < time.Duration(max(p.FailureThreshold, 1))*period
			if failures >= max(p.FailureThreshold, 1) && !early {
				report(false, err)
			}
		}
		pause := period
		if eager && !seen {
			pause = eagerly.Step()
		}
		if !backoff.Sleep(ctx, pause) {
			return
		}
	}
}

func probeOnce(ctx context.Context, t Target, h *corev1.ProbeHandler, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case h.HTTPGet != nil:
		return t.get(ctx, h.HTTPGet)
	case h.TCPSocket != nil:
		return t.connect(ctx, h.TCPSocket)
	case h.Exec != nil:
		return t.exec(ctx, h.Exec)
	}
	return errors.New("this kind of probe is not supported by the local node")
}

func (t Target) exec(ctx context.Context, e *corev1.ExecAction) error {
	code, err := t.Proc.Exec(ctx, e.Command, Streams{Stdout: io.Discard, Stderr: io.Discard})
	if err == nil && code != 0 {
		err = fmt.Errorf("%q exited with %d", e.Command[0], code)
	}
	return err
}

func (t Target) connect(ctx context.Context, s *corev1.TCPSocketAction) error {
	address, err := t.address(s.Host, s.Port)
	if err != nil {
		return err
	}
	conn, err := t.Net.Dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (t Target) get(ctx context.Context, h *corev1.HTTPGetAction) error {
	address, err := t.address(h.Host, h.Port)
	if err != nil {
		return err
	}
	path, err := url.Parse(h.Path)
	if err != nil {
		return fmt.Errorf("parse the path: %w", err)
	}
	u := url.URL{Scheme: "http", Host: address, Path: path.Path, RawQuery: path.RawQuery}
	if h.Scheme == corev1.URISchemeHTTPS {
		u.Scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "kube-probe/sandlane")
	for _, header := range h.HTTPHeaders {
		if http.CanonicalHeaderKey(header.Name) == "Host" {
			req.Host = header.Value
		}
		req.Header.Add(header.Name, header.Value)
	}
	client := http.Client{
		Transport: &http.Transport{
			DialContext:       t.Net.Dial,
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // as a kubelet does
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 10<<10))
	_ = res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode >= 400 {
		return fmt.Errorf("HTTP status %d", res.StatusCode)
	}
	return nil
}

func (t Target) address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = t.Net.Addr().String()
	}
	number := port.IntVal
	if port.Type == intstr.String {
		for _, p := range t.Spec.Ports {
			if p.Name == port.StrVal {
				number = p.ContainerPort
			}
		}
		if n, err := strconv.ParseInt(port.StrVal, 10, 32); err == nil {
			number = int32(n)
		}
	}
	if number < 1 || number > 65535 {
		return "", fmt.Errorf("port %q is not one of the container's", port.String())
	}
	return net.JoinHostPort(host, strconv.Itoa(int(number))), nil
}

// RunHook runs a lifecycle hook; nil is no hook.
func (t Target) RunHook(ctx context.Context, h *corev1.LifecycleHandler) error {
	switch {
	case h == nil:
		return nil
	case h.Exec != nil:
		return t.exec(ctx, h.Exec)
	case h.HTTPGet != nil:
		return t.get(ctx, h.HTTPGet)
	case h.Sleep != nil:
		backoff.Sleep(ctx, time.Duration(h.Sleep.Seconds)*time.Second)
		return nil
	}
	return errors.New("this kind of hook is not supported by the local node")
}
