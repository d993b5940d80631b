package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// hibernating makes sandboxes hibernate and resumes them, one after the other, by the REST
// API.
type hibernating struct {
	*pausing
	stock int
}

// sleeper is such a sandbox, as it was before it hibernated.
type sleeper struct {
	id, token, process string
	pod                string // its UID
}

func newHibernating(t *testing.T) *hibernating {
	p := &pausing{t: t, ns: shared.Namespace(t), load: newLoad(t, "")}
	var err error
	if p.key, err = shared.Key(t.Context(), p.ns); err != nil {
		t.Fatal(err)
	}
	h := &hibernating{p, 2}
	shared.Pool(t, p.ns, "resting", int32(h.stock), stack.WithIdleTimeout(0), stack.WithFreezer(), withHibernation)
	return h
}

// withHibernation lets the pool's sandboxes be paused with and without their memory.
func withHibernation(p *v1alpha1.SandboxPool) {
	if p.Spec.Pause == nil {
		p.Spec.Pause = &v1alpha1.PoolPause{}
	}
	p.Spec.Pause.Modes = []v1alpha1.PauseMode{v1alpha1.PauseFreeze, v1alpha1.PauseHibernate}
}

// keptFile reads the file of a sandbox that shows whose files it has, through a gateway; with
// content it writes that file.
func keptFile(ctx context.Context, c *http.Client, g stack.Gateway, id, token, content string) (stack.Answer, error) {
	req, err := stack.Request{
		ID: id, Port: strconv.Itoa(v1alpha1.SandboxdPort), Path: "/files?username=user&path=" + url.QueryEscape("/home/user/kept.txt"),
		Header: map[string]string{"X-Access-Token": token},
	}.Build(ctx, g.URL)
	if err != nil {
		return stack.Answer{}, err
	}
	if content != "" {
		req.Method, req.Body, req.ContentLength = http.MethodPost, io.NopCloser(strings.NewReader(content)), int64(len(content))
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	return stack.Send(c, req)
}

// made makes a sandbox whose file has its ID.
func (h *hibernating) made(g stack.Gateway) *sleeper {
	h.t.Helper()
	s := &sleeper{}
	s.id, s.token = h.createWithToken(g, "")
	shared.Eventually(h.t, 30*time.Second, "the file of "+s.id+" to be written", func() (bool, string) {
		a, err := keptFile(h.t.Context(), nil, g, s.id, s.token, s.id)
		return err == nil && a.Status == http.StatusOK, fmt.Sprint(a, err)
	})
	s.process = h.served(s.id)
	now, _ := shared.Sandbox(h.t, s.id)
	s.pod = now.Spec.Binding.PodUID
	return s
}

// hibernates waits until the sandbox's status says that it hibernates and its former pod is
// gone.
func (h *hibernating) hibernates(s *sleeper) {
	h.t.Helper()
	shared.Eventually(h.t, time.Minute, s.id+" to hibernate", func() (bool, string) {
		now, found := shared.Sandbox(h.t, s.id)
		return found && v1alpha1.Hibernated(&now) && now.Spec.End == nil && now.Status.Phase == v1alpha1.SandboxPaused && now.Status.FencedAt != nil,
			fmt.Sprintf("%+v, %+v", now.Spec, now.Status)
	})
	h.gaveUp(s)
}

// gaveUp waits until the sandbox's former pod is gone.
func (h *hibernating) gaveUp(s *sleeper) {
	h.t.Helper()
	shared.Eventually(h.t, time.Minute, "the first pod of "+s.id+" to go", func() (bool, string) {
		for _, pod := range shared.PodsOf(h.t, h.ns) {
			if string(pod.UID) == s.pod {
				return false, fmt.Sprintf("pod %s is %s", pod.Name, v1alpha1.PhaseOf(&pod))
			}
		}
		return true, ""
	})
}

// resumed sends requests to a gateway until the sandbox is resumed, by one of them or by
// another request.
func (h *hibernating) resumed(g stack.Gateway, s *sleeper) {
	h.t.Helper()
	shared.Eventually(h.t, time.Minute, s.id+" to be resumed by "+g.Name, func() (bool, string) {
		a, err := h.rest(g, resume, s.id)
		return err == nil && (a.Status == http.StatusCreated || a.Status == http.StatusOK), fmt.Sprint(a, err)
	})
}

// Which process must answer for a sandbox that was resumed.
type which int

const (
	either  which = iota // the process that ran before, or one in another pod
	another              // only one in another pod
)

// runs checks that the sandbox runs: every gateway gets the answers of one and the same
// process, the wanted one, and the sandbox's file is unchanged.
func (h *hibernating) runs(s *sleeper, want which) {
	h.t.Helper()
	shared.Eventually(h.t, time.Minute, s.id+" to run", func() (bool, string) {
		now, found := shared.Sandbox(h.t, s.id)
		return found && !now.Spec.Paused && now.Spec.Restore == nil && now.Spec.End == nil && now.Status.Phase == v1alpha1.SandboxRunning && v1alpha1.Awake(&now),
			fmt.Sprintf("%+v, %+v", now.Spec, now.Status)
	})
	got := h.served(s.id)
	if want == another && got == s.process {
		h.t.Errorf("the process %s answers, as before: it was to be another one", got)
	}
	for _, g := range shared.Up.Gateways {
		a, err := keptFile(h.t.Context(), nil, g, s.id, s.token, "")
		if err != nil || a.Status != http.StatusOK || string(a.Body) != s.id {
			h.t.Errorf("the file of %s through %s: %v, %v", s.id, g.Name, a, err)
		}
	}
}

// kill ends a sandbox.
func (h *hibernating) kill(g stack.Gateway, s *sleeper) {
	h.t.Helper()
	a, err := g.REST(h.t.Context(), nil, h.key, http.MethodDelete, "/sandboxes/"+s.id, "")
	if err != nil || a.Status != http.StatusNoContent {
		h.t.Errorf("kill: %v, %v", a, err)
	}
}

// nothingLeft checks that every answer came from the right pod, that all pods except idle
// ones are gone, and that no Checkpoint with data is left. Failed Checkpoints of gateways
// that were killed before they stored data may stay for an hour, for people to read.
func (h *hibernating) nothingLeft() {
	t := h.t
	t.Helper()
	h.load.judge()
	shared.WaitIdle(t, h.ns, "resting", h.stock)
	shared.Eventually(t, sweepLimit, "all other pods to go", func() (bool, string) {
		n := len(shared.PodsOf(t, h.ns))
		return n == h.stock, fmt.Sprintf("%d pods for a stock of %d", n, h.stock)
	})
	shared.Eventually(t, sweepLimit, "what was kept to go", func() (bool, string) {
		var all v1alpha1.CheckpointList
		if err := shared.Client.List(t.Context(), &all, client.InNamespace(h.ns)); err != nil {
			t.Fatal(err)
		}
		for _, cp := range all.Items {
			if _, err := os.Stat(filepath.Join(shared.State, "checkpoints", string(cp.UID))); err == nil || cp.Status.Phase == v1alpha1.CheckpointSucceeded {
				return false, fmt.Sprintf("checkpoint %s of %s is %s, its data: %v", cp.Name, cp.Spec.SandboxID, cp.Status.Phase, err)
			}
		}
		return true, ""
	})
}

// Requests that are being served when the sandbox hibernates are not answered by its former
// pod: no answer says that something was done which is lost with that pod.
func TestRequestsUnderWayAtAHibernation(t *testing.T) {
	h := newHibernating(t)
	s := h.made(shared.Up.Gateways[0])
	var answers [90]held // some are due while it is frozen, before its pod is stopped
	first := make(chan struct{}, len(answers))
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			r := stack.Request{ID: s.id, Path: fmt.Sprintf("/sleep?seconds=%.2f", 0.3+float64(i)/100)}
			req, err := r.Build(t.Context(), shared.Up.Gateways[i%len(shared.Up.Gateways)].URL)
			if err == nil {
				answers[i].Answer, err = stack.Send(newHTTP(t), req)
			}
			answers[i].err = err
			first <- struct{}{}
		})
	}
	<-first // then the others have begun too
	h.want(shared.Up.Gateways[0], hibernate, s.id, http.StatusNoContent)
	paused := float64(time.Now().UnixNano()) / 1e9
	all.Wait()
	h.hibernates(s)
	var cut int
	for i, a := range answers {
		switch {
		case a.err != nil: // Envoy must answer when the pod is gone
			t.Errorf("request %d has no answer: %v", i, a.err)
		case a.Status != http.StatusOK:
			cut++
		case a.Echo == nil || a.Echo.At == 0:
			t.Errorf("a request is answered with %v", a.Answer)
		case a.Echo.At > paused: // by the pod's own clock: what it answered before may arrive late
			t.Errorf("request %d is answered %.3f s after the sandbox hibernated: %v", i, a.Echo.At-paused, a.Answer)
		}
	}
	if cut == 0 {
		t.Error("no request was under way")
	}
	h.resumed(shared.Up.Gateways[1], s)
	h.runs(s, another)
	h.kill(shared.Up.Gateways[1], s)
	h.nothingLeft()
}
