package stack

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// identity serves on port 8000 what the echo server does, beside sandboxd, since pods with
// another container cannot be frozen: an identity, for /sleep?seconds=N after N seconds.
const identity = `
import http.server, json, os, time, uuid
process = uuid.uuid4().hex
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1 # headers and body in one write: a freeze between two would cut the answer
    def do_GET(self):
        path, _, seconds = self.path.partition("?seconds=")
        if path == "/sleep":
            time.sleep(float(seconds))
        body = json.dumps({"podUID": os.environ["POD_UID"], "process": process, "at": time.time()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512
Server(("", 8000), Handler).serve_forever()`

// WithFreezer makes the pool's pods such that sandboxd can freeze them. They answer as the
// echo server does to GET / and /sleep, in as far as Echo has the pod and the process, say when,
// and run these shell commands besides.
func WithFreezer(commands ...string) PoolOption {
	return func(p *v1alpha1.SandboxPool) {
		main := &p.Spec.Template.Template.Spec.Containers[0]
		main.Image = "local/base"
		script := `python3 -c "$IDENTITY" & `
		for _, c := range commands {
			script += "(" + c + ") & "
		}
		main.Command = []string{"/bin/sh", "-c", script + "exec /image/sandboxd"}
		main.Env = append(main.Env, corev1.EnvVar{Name: "IDENTITY", Value: identity})
		main.Ports = append(main.Ports, corev1.ContainerPort{Name: "envd", ContainerPort: v1alpha1.SandboxdPort})
	}
}

// REST asks the REST API of a gateway with an API key. A nil client is one with a minute's
// patience.
func (g Gateway) REST(ctx context.Context, c *http.Client, key, method, path, body string) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, g.URL+path, strings.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("X-API-Key", key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	a, err := Send(c, req)
	if err != nil {
		return a, fmt.Errorf("%s of %s %s: %w", method, g.Name, path, err)
	}
	return a, nil
}

// Key makes an API key for a namespace.
func (s *Stack) Key(ctx context.Context, namespace string) (string, error) {
	out, err := s.Run(ctx, "apikey", "create", "--team", namespace, "--namespace", namespace)
	if err != nil {
		return "", fmt.Errorf("make a key: %w\n%s", err, out)
	}
	key, _, _ := strings.Cut(out, "\n")
	return key, nil
}
