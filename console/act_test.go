package console

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// playedAPI answers reads of one sandbox, its pool and its pod, and keeps what is written.
func playedAPI(t *testing.T, s *v1alpha1.Sandbox, pod *corev1.Pod, writes *[]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any = s
		switch {
		case r.Method == http.MethodPatch:
			body, _ := io.ReadAll(r.Body)
			*writes = append(*writes, string(body))
		case strings.Contains(r.URL.Path, "/sandboxpools/"):
			answer = &v1alpha1.SandboxPool{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxPool"}}
		case strings.Contains(r.URL.Path, "/pods/"):
			answer = pod
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// An action is written for the sandbox that the page showed, as a test of its UID, and
// refused for another of the same ID.
func TestAct(t *testing.T) {
	for name, tc := range map[string]struct {
		action, uid string
		change      func(*v1alpha1.Sandbox)
		code        int
		write       string
	}{
		"end":              {"end", "u", func(*v1alpha1.Sandbox) {}, http.StatusNoContent, `"reason":"Released"`},
		"end of another":   {"end", "x", func(*v1alpha1.Sandbox) {}, http.StatusConflict, ""},
		"pause":            {"pause", "u", func(*v1alpha1.Sandbox) {}, http.StatusNoContent, `"path":"/spec/paused","value":true`},
		"pause of a pause": {"pause", "u", func(s *v1alpha1.Sandbox) { s.Spec.Paused = true }, http.StatusConflict, ""},
		"resume":           {"resume", "u", func(s *v1alpha1.Sandbox) { s.Spec.Paused = true }, http.StatusNoContent, `"op":"remove","path":"/spec/paused"`},
		"resume of none":   {"resume", "u", func(*v1alpha1.Sandbox) {}, http.StatusConflict, ""},
		"resume without a pod": {"resume", "u", func(s *v1alpha1.Sandbox) {
			s.Spec.Paused, s.Spec.Binding, s.Spec.Restore = true, nil, &v1alpha1.Restore{Checkpoint: "c"}
		}, http.StatusConflict, ""},
		"open":                   {"open", "u", func(*v1alpha1.Sandbox) {}, http.StatusOK, ""},
		"open of another":        {"open", "x", func(*v1alpha1.Sandbox) {}, http.StatusConflict, ""},
		"open of what has ended": {"open", "u", func(s *v1alpha1.Sandbox) { s.Spec.End = &v1alpha1.End{} }, http.StatusConflict, ""},
		"unknown":                {"delete", "u", func(*v1alpha1.Sandbox) {}, http.StatusNotFound, ""},
	} {
		s := &v1alpha1.Sandbox{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Sandbox"},
			ObjectMeta: metav1.ObjectMeta{Name: "hello", UID: "u"}, Status: v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxRunning},
			Spec: v1alpha1.SandboxSpec{Namespace: "ns", Pool: "web", Binding: &v1alpha1.Binding{ClaimID: "c", PodName: "p", PodUID: "pu"}},
		}
		tc.change(s)
		pod := &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "p", UID: "pu", Annotations: map[string]string{v1alpha1.AnnotationClaim: "c"},
				Labels: map[string]string{v1alpha1.LabelSandboxID: "hello", v1alpha1.LabelPhase: string(v1alpha1.PodRunning)},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}}}}},
		}
		var written []string
		opened := 0
		link := func(_ context.Context, _ client.Client, s *v1alpha1.Sandbox, port uint16) (string, error) {
			opened++
			return "http://8000-" + s.Name + ".localhost/" + string(s.UID) + strconv.Itoa(int(port)), nil
		}
		server, err := New(Options{Config: &rest.Config{Host: playedAPI(t, s, pod, &written)}, Link: link, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		server.run = func() {}
		r := httptest.NewRequest(http.MethodPost, "/api/sandboxes/hello/"+tc.action, strings.NewReader(`{"uid":"`+tc.uid+`","port":8000}`))
		r.Host = "127.0.0.1:1"
		r.Header.Set("Authorization", "Bearer "+server.token)
		w := httptest.NewRecorder()
		server.handler(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}).ServeHTTP(w, r)
		all := strings.Join(written, "\n")
		if w.Code != tc.code || !strings.Contains(all, tc.write) || (tc.write == "") != (all == "") {
			t.Errorf("%s: %d %s, written %s", name, w.Code, w.Body, all)
		}
		if has := strings.Contains(w.Body.String(), "http://8000-hello.localhost/u8000"); has != (tc.code == http.StatusOK) || opened > 0 != has {
			t.Errorf("%s: %d links, %s", name, opened, w.Body)
		}
		if all != "" && !strings.Contains(all, `{"op":"test","path":"/metadata/uid","value":"u"}`) {
			t.Errorf("%s: written without a test of the UID: %s", name, all)
		}
	}
}
