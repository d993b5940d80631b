package poststarthooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/bubble"
)

// script answers the tries in order; what is missing succeeds, and nil blocks.
type script struct {
	answers []error
	calls   []string
}

var errBlock = errors.New("block")

func (s *script) do(ctx context.Context, what string) error {
	s.calls = append(s.calls, what)
	if len(s.calls) > len(s.answers) {
		return nil
	}
	err := s.answers[len(s.calls)-1]
	if errors.Is(err, errBlock) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (s *script) Exec(ctx context.Context, _ *corev1.Pod, container string, command []string) error {
	return s.do(ctx, container+" "+strings.Join(command, " "))
}

func (s *script) Post(ctx context.Context, _ *corev1.Pod, h *v1alpha1.HTTPPostHook) error {
	return s.do(ctx, "post "+h.Path)
}

func TestRun(t *testing.T) {
	no := errors.New("no")
	exec := func(name string, change ...func(*v1alpha1.PostStartHook)) v1alpha1.PostStartHook {
		h := v1alpha1.PostStartHook{Name: name, Exec: &v1alpha1.ExecHook{Command: []string{name}}}
		for _, f := range change {
			f(&h)
		}
		return h
	}
	retries := func(n int32) func(*v1alpha1.PostStartHook) {
		return func(h *v1alpha1.PostStartHook) { h.Retries = n }
	}
	ignore := func(h *v1alpha1.PostStartHook) { h.FailurePolicy = v1alpha1.HookIgnore }
	post := v1alpha1.PostStartHook{Name: "p", HTTPPost: &v1alpha1.HTTPPostHook{Path: "/x"}}
	for _, tt := range []struct {
		name    string
		hooks   []v1alpha1.PostStartHook
		answers []error
		calls   string
		err     string
		ignored int
		took    time.Duration
	}{
		{"none", nil, nil, "[]", "", 0, 0},
		{"in order", []v1alpha1.PostStartHook{exec("a"), post}, nil, "[main a post /x]", "", 0, 0},
		{"fails", []v1alpha1.PostStartHook{exec("a"), post}, []error{no}, "[main a]", "hook a failed after 1 tries: no", 0, 0},
		{"fails at first", []v1alpha1.PostStartHook{exec("a", retries(3)), post}, []error{no, no}, "[main a main a main a post /x]", "", 0, 3 * time.Second},
		{"fails for good", []v1alpha1.PostStartHook{exec("a", retries(2))}, []error{no, no, no}, "[main a main a main a]", "after 3 tries", 0, 3 * time.Second},
		{"may fail", []v1alpha1.PostStartHook{exec("a", ignore), post}, []error{no}, "[main a post /x]", "", 1, 0},
		{"hangs", []v1alpha1.PostStartHook{exec("a", retries(1), func(h *v1alpha1.PostStartHook) { h.TimeoutSeconds = 2 })}, []error{errBlock, nil}, "[main a main a]", "", 0, 3 * time.Second},
		{"hangs for good", []v1alpha1.PostStartHook{exec("a")}, []error{errBlock}, "[main a]", "no answer within 10s", 0, 10 * time.Second},
		{"the startup timeout is over, also for what may fail", []v1alpha1.PostStartHook{exec("a", ignore, retries(100), func(h *v1alpha1.PostStartHook) { h.TimeoutSeconds = 3600 }), post},
			[]error{errBlock}, "[main a]", "hook a failed after 1 tries", 0, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s := &script{answers: tt.answers}
				begun := time.Now()
				ignored, err := Run(ctx, s, &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}, tt.hooks)
				if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || len(ignored) != tt.ignored {
					t.Errorf("error %v, ignored %v", err, ignored)
				}
				if got := fmt.Sprint(s.calls); got != tt.calls {
					t.Errorf("calls %s, want %s", got, tt.calls)
				}
				if took := time.Since(begun); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

func TestPost(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.Path + " " + string(body)
		switch r.URL.Path {
		case "/elsewhere":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/no":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	host, portText, _ := net.SplitHostPort(u.Host)
	port, _ := strconv.Atoi(portText)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationAddress: host}}}
	pod.Status.PodIP = host
	c := &Cluster{}
	hook := func(path string) *v1alpha1.HTTPPostHook {
		return &v1alpha1.HTTPPostHook{Port: int32(port), Path: path, Body: "{}"} //nolint:gosec // a port
	}
	if err := c.Post(t.Context(), pod, hook("/ok")); err != nil || got != "POST /ok {}" {
		t.Errorf("%v, the server got %q", err, got)
	}
	for _, path := range []string{"/no", "/elsewhere"} {
		if err := c.Post(t.Context(), pod, hook(path)); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
	got = ""
	pod.Annotations[v1alpha1.AnnotationAddress] = "127.0.0.99"
	if err := c.Post(t.Context(), pod, hook("/ok")); err == nil || got != "" {
		t.Errorf("a pod at another address was asked: %v, %q", err, got)
	}
}
