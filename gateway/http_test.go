package gateway

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/envoy"
)

// Envoy's statistics come as Prometheus takes them, and not at all without an Envoy.
func TestEnvoyMetrics(t *testing.T) {
	dir := t.TempDir()
	h := newEnvoyMetrics(envoy.Admin{Socket: filepath.Join(dir, EnvoyAdminSocket)})
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, envoyMetricsPath, nil))
		return w
	}
	if w := ask(); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without an Envoy: %d %s", w.Code, w.Body)
	}
	startAdmin(t, dir)
	w := ask()
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "envoy_server_live 1\n") || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
