package helm

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// named are the metrics in an expression: a name with the prefix of a process.
	named = regexp.MustCompile(`\b(?:sandlane|envoy|leader_election|controller_runtime|process)_[a-z0-9_]+`)
	// labels of Envoy's metrics look like their names.
	labels = regexp.MustCompile(`\benvoy_(response_code_class|http_conn_manager_prefix)\b`)
	family = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
	series = regexp.MustCompile(`(?m)^([a-z0-9_]+)[{ ]`)
)

// metrics: after the steps before, the processes expose every metric that the rules and the
// dashboard name, with a value.
func (c *cluster) metrics(t *testing.T) {
	exposed, types := map[string]bool{}, map[string]string{}
	for _, at := range []struct{ app, path string }{
		{"sandlane-gateway", "/metrics"}, {"sandlane-gateway", "/metrics/envoy"}, {"sandlane-controller", "/metrics"},
	} {
		for _, ip := range strings.Fields(c.kubectl(t, "-n", system, "get", "pods", "-l", "app="+at.app, "-o", "jsonpath={.items[*].status.podIP}")) {
			out := c.run(t, "curl", "-fsS", "--max-time", "10", "http://"+ip+":9102"+at.path)
			for _, m := range family.FindAllStringSubmatch(out, -1) {
				types[m[1]] = m[2]
			}
			for _, m := range series.FindAllStringSubmatch(out, -1) {
				exposed[m[1]] = true
			}
		}
	}
	missing, wanted := map[string]bool{}, 0
	for _, file := range []string{rulesFile, chart + "/files/dashboard.json"} {
		for _, name := range named.FindAllString(labels.ReplaceAllString(text(t, file), ""), -1) {
			if strings.HasPrefix(name, "sandlane_egress_") {
				continue // this release has no egress; package egress/proxy compares them
			}
			if wanted++; !exposed[name] && !missing[name] {
				missing[name] = true
				t.Errorf("%s names %s, which no process exposes", filepath.Base(file), name)
			}
		}
	}
	if wanted < 40 || len(types) < 100 {
		t.Errorf("only %d names in rules and dashboard, %d metrics: the patterns have rotted", wanted, len(types))
	}
}

// logLevel: a process's log level changes without a restart, by kubectl port-forward, but
// not by a request from another pod.
func (c *cluster) logLevel(t *testing.T) {
	pod := strings.Fields(c.kubectl(t, "-n", system, "get", "pods", "-l", "app=sandlane-gateway", "-o", "jsonpath={.items[*].metadata.name}"))[0]
	ip := c.kubectl(t, "-n", system, "get", "pod", pod, "-o", "jsonpath={.status.podIP}")
	const ask = "curl -sS --max-time 10 -X PUT -d debug"
	if out := c.run(t, "sh", "-c", ask+" http://"+ip+":9102/log-level"); !strings.Contains(out, "kubectl port-forward") {
		t.Errorf("from another address the answer is %q", out)
	}
	out := c.run(t, "sh", "-c", `kubectl -n "$0" port-forward "pod/$1" 19102:9102 >/dev/null & trap "kill $!" EXIT
		`+ask+` --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:19102/log-level`, system, pod)
	if out != "debug" {
		t.Errorf("by port-forward the answer is %q", out)
	}
}
