package poststarthooks

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/exec"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// What a hook's command or URL says does not get into an error, which ends up where
// many may read it.
func TestErrorsKeepSecrets(t *testing.T) {
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusInternalServerError
		if strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/forbidden/") {
			status = http.StatusForbidden
		}
		http.Error(w, r.URL.String(), status)
	}))
	defer refuses.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	over, end := context.WithCancel(t.Context())
	end()
	for _, tc := range []struct {
		name, server, namespace string
		ctx                     context.Context
		want                    string // in the error of exec
		wantPost                string
	}{
		{"nobody listens", gone.URL, "n", t.Context(), "API server did not answer", "connection refused"},
		{"fails", refuses.URL, "n", t.Context(), "answered 500 Internal Server Error", "answered 500"},
		{"forbidden", refuses.URL, "forbidden", t.Context(), "answered 403 Forbidden", "answered 500"},
		{"out of time", refuses.URL, "n", over, "context canceled", "context canceled"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := &rest.Config{Host: tc.server}
			clientset, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(tc.server)
			if err != nil {
				t.Fatal(err)
			}
			port, err := strconv.Atoi(u.Port())
			if err != nil {
				t.Fatal(err)
			}
			c := &Cluster{Config: config, Clientset: clientset}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: tc.namespace, Name: "p", Annotations: map[string]string{v1alpha1.AnnotationAddress: u.Hostname()},
			}}
			pod.Status.PodIP = u.Hostname()
			without(t, c.Exec(tc.ctx, pod, "main", []string{"login", "SECRET"}), tc.want)
			hook := &v1alpha1.HTTPPostHook{Port: int32(port), Path: "/x?token=SECRET", Body: "SECRET"} //nolint:gosec // a port
			without(t, c.Post(tc.ctx, pod, hook), tc.wantPost)
			hook.Path = "/%zz?token=SECRET"
			without(t, c.Post(tc.ctx, pod, hook), "making the request")
		})
	}
}

func without(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("%v; want %q and no secret", err, want)
	}
}

func TestExecErrors(t *testing.T) {
	node := errors.New("failed to exec in container: /no/SECRET: no such file or directory")
	exit := exec.CodeExitError{Err: errors.New("command terminated with exit code 3"), Code: 3}
	without(t, execError(t.Context(), node, http.StatusSwitchingProtocols), "have the program")
	if err := execError(t.Context(), exit, http.StatusSwitchingProtocols); !errors.As(err, new(exec.CodeExitError)) || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("an exit became %v", err)
	}
}
