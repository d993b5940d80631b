package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/stack"
)

// result is one answer of a burst.
type result struct {
	id     string
	answer stack.Answer
	err    error
	took   time.Duration
}

// burst connects once for each request first, so that the barrier lets all requests
// go at once, and returns when every answer is in.
func burst(t *testing.T, requests []stack.Request) []result {
	t.Helper()
	gateway, err := url.Parse(shared.Up.GatewayURL)
	if err != nil {
		t.Fatal(err)
	}
	results := make([]result, len(requests))
	ready, barrier, done := sync.WaitGroup{}, make(chan struct{}), sync.WaitGroup{}
	for i, r := range requests {
		ready.Add(1)
		done.Go(func() {
			conn, err := (&net.Dialer{Timeout: time.Minute}).DialContext(t.Context(), "tcp", gateway.Host)
			ready.Done()
			if err != nil {
				results[i] = result{id: r.ID, err: fmt.Errorf("connect: %w", err)}
				return
			}
			connections := make(chan net.Conn, 1)
			connections <- conn
			tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				select {
				case conn := <-connections:
					return conn, nil
				default:
					return nil, errors.New("the request asked for a second connection")
				}
			}}
			defer tr.CloseIdleConnections()
			c := &http.Client{Transport: tr, Timeout: 2 * time.Minute}
			<-barrier
			began := time.Now()
			a, err := shared.Try(t.Context(), c, r)
			results[i] = result{id: r.ID, answer: a, err: err, took: time.Since(began)}
		})
	}
	ready.Wait()
	close(barrier)
	done.Wait()
	return results
}

// audit reads the API server's audit log.
func audit(t *testing.T) []stack.AuditEvent {
	t.Helper()
	events, err := shared.Audit()
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// 200 first requests at once for one new ID: one Sandbox, one applied pod
// PATCH, 200 answers from that pod.
func TestOneClaimForOneID(t *testing.T) {
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 5)
	requests := make([]stack.Request, 200)
	for i := range requests {
		requests[i] = stack.Request{ID: "one-claim", Pool: ns + "/pool"}
	}
	before := len(audit(t))
	pods := map[string]int{}
	for _, r := range burst(t, requests) {
		if r.err != nil || r.answer.Echo == nil {
			t.Fatalf("answer: %v, %v", r.answer, r.err)
		}
		pods[r.answer.Echo.PodUID+" "+r.answer.Echo.Process]++
	}
	if len(pods) != 1 {
		t.Errorf("answers came from %v, want one pod", pods)
	}
	// The audit log is written after the answer, so wait for what must come;
	// what must not come has had as long to show.
	var creates, claims int
	shared.Eventually(t, 10*time.Second, "the claim in the audit log", func() (bool, string) {
		creates, claims = 0, 0
		for _, e := range audit(t)[before:] {
			if !strings.HasPrefix(e.UserAgent, "sandlane-gateway") {
				continue
			}
			if e.ObjectRef.Resource == "sandboxes" && e.Verb == "create" && e.ResponseStatus.Code == 201 && e.ObjectRef.Name == "one-claim" {
				creates++
			}
			if e.ObjectRef.Resource == "pods" && e.ObjectRef.Namespace == ns && e.ObjectRef.Subresource == "" && e.Verb == "patch" && e.ResponseStatus.Code == 200 {
				claims++
			}
		}
		return creates >= 1 && claims >= 1, fmt.Sprintf("%d creates, %d claims", creates, claims)
	})
	if creates != 1 || claims != 1 {
		t.Errorf("%d sandboxes created and %d pods patched by the gateway, want one each", creates, claims)
	}
	var list corev1.PodList
	if err := shared.Client.List(t.Context(), &list, client.InNamespace(ns), client.MatchingLabels{v1alpha1.LabelSandboxID: "one-claim"}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Errorf("%d pods carry the sandbox's ID", len(list.Items))
	}
	t.Logf("200 requests, 1 create, 1 claim, %d distinct pods", len(pods))
}

// 50 new IDs at once on a pool of 20 are served by 50 different pods.
func TestManyIDs(t *testing.T) {
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 20)
	var requests []stack.Request
	for i := range 50 {
		requests = append(requests, stack.Request{ID: fmt.Sprintf("many-%d", i), Pool: ns + "/pool"})
	}
	pods := map[string]string{}
	var slowest time.Duration
	for _, r := range burst(t, requests) {
		if r.err != nil || r.answer.Echo == nil {
			t.Fatalf("%s after %v: %v, %v", r.id, r.took, r.answer, r.err)
		}
		if other, taken := pods[r.answer.Echo.PodUID]; taken {
			t.Errorf("%s and %s were answered by the same pod", r.id, other)
		}
		pods[r.answer.Echo.PodUID] = r.id
		slowest = max(slowest, r.took)
	}
	t.Logf("%d sandboxes in %d pods, the slowest after %v", len(requests), len(pods), slowest)
}

// With maxPods 20 exactly 20 of 100 are served at once and 80 wait; when 5 have
// ended, exactly 5 of those are served, and 75 are told to come back.
func TestMaxPods(t *testing.T) {
	t.Parallel() // it waits more than it works
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 20, stack.WithMaxPods(20))
	var requests []stack.Request
	for i := range 100 {
		requests = append(requests, stack.Request{ID: fmt.Sprintf("max-%d", i), Pool: ns + "/pool"})
	}
	results := make(chan []result, 1)
	go func() { results <- burst(t, requests) }()
	first := map[string]bool{}
	shared.Eventually(t, 40*time.Second, "20 sandboxes and 80 requests that wait", func() (bool, string) {
		clear(first)
		for _, pod := range shared.PodsOf(t, ns) {
			if id := pod.Labels[v1alpha1.LabelSandboxID]; id != "" {
				first[id] = true
			}
		}
		n := metric(t, "sandlane_extproc_parked")
		return len(first) == 20 && n >= 80, fmt.Sprintf("%d sandboxes, %v parked", len(first), n)
	})
	ended := 0
	for id := range first {
		if err := writes.EndSandbox(t.Context(), shared.Client, id, v1alpha1.EndReleased, "make room"); err != nil {
			t.Fatal(err)
		}
		if ended++; ended == 5 {
			break
		}
	}
	served, pods, refused := map[string]bool{}, map[string]bool{}, 0
	for _, r := range <-results {
		switch {
		case r.err != nil:
			t.Fatalf("%s: %v", r.id, r.err)
		case r.answer.Echo != nil:
			served[r.id] = true
			pods[r.answer.Echo.PodUID] = true
		case r.answer.Status == 503:
			if n, err := strconv.Atoi(r.answer.Header.Get("Retry-After")); err != nil || n < 1 {
				t.Errorf("503 with Retry-After %q", r.answer.Header.Get("Retry-After"))
			}
			refused++
		default:
			t.Errorf("%s: %v", r.id, r.answer)
		}
	}
	if len(served) != 25 || len(pods) != 25 || refused != 75 {
		t.Errorf("%d served by %d pods, %d refused; want 25, 25, 75", len(served), len(pods), refused)
	}
	for id := range first {
		if !served[id] {
			t.Errorf("%s has a pod, and its request was not served", id)
		}
	}
}

// metric sums a metric of the gateway over its labels.
func metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", shared.Up.MetricsURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := stack.Send(nil, req)
	if err != nil || a.Status != 200 {
		t.Fatalf("read the metrics: %v, %v", a, err)
	}
	found := false
	for line := range strings.Lines(string(a.Body)) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || rest == "" || (rest[0] != ' ' && rest[0] != '{') {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			t.Fatalf("metric line %q: %v", line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		t.Fatalf("the gateway has no metric %s", name)
	}
	return sum
}
