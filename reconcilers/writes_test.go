package reconcilers_test

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/kubetest"
)

// writes are those that the API server has taken so far, by kind, by its own count.
func (w *world) writes() map[string]int {
	w.t.Helper()
	c, err := kubernetes.NewForConfig(kubetest.Config(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	raw, err := c.RESTClient().Get().AbsPath("/metrics").DoRaw(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	label := func(line, name string) string {
		_, rest, _ := strings.Cut(line, name+`="`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	counts := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.HasPrefix(label(line, ",code"), "2") && !strings.HasPrefix(label(line, "{code"), "2") {
			continue
		}
		switch verb := label(line, "verb"); verb {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE":
			n, err := strconv.Atoi(line[strings.LastIndex(line, " ")+1:])
			if err != nil {
				w.t.Fatalf("%s: %v", line, err)
			}
			what := label(line, ",resource")
			if sub := label(line, "subresource"); sub != "" {
				what += "/" + sub
			}
			counts[verb+" "+what] += n
		}
	}
	return counts
}

// TestWritesOfALife: what one sandbox costs the API server, from the making of its
// pod to the end of its record, is thirteen writes: seven to the pod, of which two
// are the node's, and six to the Sandbox. A scheduler's binding and another status
// of the kubelet's make it fifteen on a real cluster; a changed image and an idle release
// add one each. Writes bound how many sandboxes an API server bears. So a normal life has no
// Events; the first status is written when the pod has the claim, and says Running if no
// image changes; the record of the end is one write with its fence, if all gateways
// acknowledge within 200 ms; and the write that stops the pod also notes why, and removes its
// finalizer, but for pods that may be recycled and failed ones.
func TestWritesOfALife(t *testing.T) {
	w := newWorldAlone(t, func(w *world) { w.options.NoRecords = true })
	w.pool("p", 2, 0)
	w.await("p", v1alpha1.PodIdle, 2)
	const lives, most = 5, 13
	before := w.writes()
	for range lives {
		s, pod := w.running("p")
		if err := writes.EndSandbox(t.Context(), w.c, s.Name, v1alpha1.EndReleased, "test"); err != nil {
			t.Fatal(err)
		}
		w.awaitSandbox(s, "")
		w.awaitGone(pod)
		w.await("p", v1alpha1.PodIdle, 2)
	}
	sum, of := 0, map[string]float64{}
	for what, n := range w.writes() {
		n -= before[what]
		if n == 0 || strings.HasPrefix(what, "PATCH sandboxpools") || strings.HasSuffix(what, " leases") {
			continue // a pool's status is written for many lives at a time; the API server keeps a lease
		}
		of[what] = float64(n) / lives
		sum += n
	}
	t.Logf("writes a life: %v", of)
	t.Attr("writes-a-life", fmt.Sprint(float64(sum)/lives)) // bench/control reads it
	if sum > lives*most {
		t.Errorf("%.1f writes a life, at most %d: %v", float64(sum)/lives, most, of)
	}
}
