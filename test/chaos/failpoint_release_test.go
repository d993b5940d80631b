package chaos

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/stack"
)

// releaseSteps are the points between the writes of a release, in their order. Only a
// Sandbox that was deleted reaches the points of forgetting.
var releaseSteps = []struct {
	point      string
	deleteOnly bool
}{
	{"sandbox/finishing", true},
	{"sandbox/ending", false},
	{"sandbox/recorded", false},
	{"sandbox/stopped", false},
	{"controlplane/acknowledged", false},
	{"sandbox/fenced", false},
	{"sandbox/ended", false},
	{"sandboxpool/deleting", false},
	{"sandboxpool/deleted", false},
	{"sandbox/forgetting", true},
	{"sandbox/forgotten", true},
}

// The controller is killed at each step of a release, of a sandbox that was ended and of one
// that was deleted. The next controller completes the release, and repeats no step that was
// done.
func TestControllerKilledDuringRelease(t *testing.T) {
	const stock = 5
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", stock, stack.WithIdleTimeout(0))
	l := newLoad(t, ns+"/pool")
	seen := watchReleases(t)
	var current atomic.Value
	current.Store("")
	for _, g := range shared.Up.Gateways {
		l.hammer(g, 25*time.Millisecond, func() string { return current.Load().(string) }, nil)
	}
	var (
		slowest time.Duration
		pid     int
		done    []string
	)
	reused := record.Reused()
	for _, deleted := range []bool{false, true} {
		for n, step := range releaseSteps {
			if step.deleteOnly && !deleted {
				continue
			}
			id := fmt.Sprintf("%s-%t-%d", ns, deleted, n)
			waitStock(t, ns, 1)
			shared.Touch(t, id, l.pool)
			s, _ := shared.Sandbox(t, id)
			current.Store(id)
			pid = controllerPID(t, pid)
			waitRunning(t, id)
			arm(t, "controller", step.point, "kill")
			if deleted {
				current.Store("") // a request would make another sandbox of the ID
				if err := shared.Client.Delete(t.Context(), &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id}}); err != nil {
					t.Fatal(err)
				}
			} else if err := writes.EndSandbox(t.Context(), shared.Client, id, v1alpha1.EndReleased, "killed at "+step.point); err != nil {
				t.Fatal(err)
			}
			waitHit(t, "controller", step.point)
			killed := time.Now()
			waitReleased(t, ns, id, s.Spec.Binding.PodName, deleted)
			took := time.Since(killed)
			slowest = max(slowest, took)
			done = append(done, id)
			t.Logf("%s, deleted %t: killed, and released %v later", step.point, deleted, took.Round(time.Millisecond))
		}
	}
	controllerPID(t, pid)
	shared.WaitIdle(t, ns, "pool", stock)
	shared.Eventually(t, 30*time.Second, "the last pods to go", func() (bool, string) {
		n := len(shared.PodsOf(t, ns))
		return n == stock, fmt.Sprintf("%d pods for a stock of %d", n, stock)
	})
	l.judge()
	complete := 0
	for _, id := range done {
		if problems := seen.problems(id); len(problems) > 0 {
			t.Errorf("%s: %s", id, strings.Join(problems, "; "))
		} else {
			complete++
		}
		if c, p := len(record.Claims(id)), record.Pods(id); c != 1 || p != 1 {
			t.Errorf("%s: %d claims on %d pods, want one", id, c, p)
		}
	}
	t.Logf("%d kills of the controller, %d releases complete, each once, the slowest %v after the kill; %d addresses used again by another sandbox; answers %s",
		len(done), complete, slowest.Round(time.Millisecond), record.Reused()-reused, counts(l.status))
	if complete != len(done) {
		t.Errorf("%d of %d releases complete", complete, len(done))
	}
}

// waitRunning waits until the status says that the sandbox runs: the controller
// has nothing to do for it but to end it.
func waitRunning(t *testing.T, id string) {
	t.Helper()
	shared.Eventually(t, 20*time.Second, id+" to be Running on record", func() (bool, string) {
		s, _ := shared.Sandbox(t, id)
		return s.Status.Phase == v1alpha1.SandboxRunning && s.Status.Address != "", string(s.Status.Phase)
	})
}

// waitReleased waits until the sandbox's status is Ended, or the object is gone if it was
// deleted, and its pod is gone.
func waitReleased(t *testing.T, ns, id, pod string, deleted bool) {
	t.Helper()
	shared.Eventually(t, 40*time.Second, id+" to be released", func() (bool, string) {
		s, found := shared.Sandbox(t, id)
		over := s.Status.Phase == v1alpha1.SandboxEnded && s.Status.FencedAt != nil
		err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: pod}, &corev1.Pod{})
		gone := err != nil && client.IgnoreNotFound(err) == nil
		return gone && (deleted && !found || !deleted && over),
			fmt.Sprintf("sandbox found %t, phase %s, fenced %t; pod gone %t", found, s.Status.Phase, s.Status.FencedAt != nil, gone)
	})
}

// releases keeps the states that a watch shows of each Sandbox.
type releases struct {
	mu   sync.Mutex
	seen map[string][]v1alpha1.Sandbox
}

// watchReleases watches until the test is over.
func watchReleases(t *testing.T) *releases {
	t.Helper()
	w, err := shared.Client.Watch(t.Context(), &v1alpha1.SandboxList{})
	if err != nil {
		t.Fatal(err)
	}
	r := &releases{seen: map[string][]v1alpha1.Sandbox{}}
	var done sync.WaitGroup
	done.Go(func() {
		for e := range w.ResultChan() {
			if s, ok := e.Object.(*v1alpha1.Sandbox); ok {
				r.mu.Lock()
				r.seen[s.Name] = append(r.seen[s.Name], *s)
				r.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { w.Stop(); done.Wait() })
	return r
}

// problems returns what was done more than once in the release of a sandbox: each field must
// keep the value that was written first, and no phase may come again.
func (r *releases) problems(id string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	order := map[v1alpha1.SandboxPhase]int{
		"": 0, v1alpha1.SandboxPending: 1, v1alpha1.SandboxStarting: 2, v1alpha1.SandboxRunning: 3, v1alpha1.SandboxEnding: 4, v1alpha1.SandboxEnded: 5,
	}
	written := map[string]map[string]bool{}
	note := func(what string, value any) {
		text, err := json.Marshal(value)
		if err != nil {
			out = append(out, err.Error())
		}
		switch {
		case string(text) != "null":
			if written[what] == nil {
				written[what] = map[string]bool{}
			}
			written[what][string(text)] = true
		case written[what] != nil:
			out = append(out, what+" was taken away")
		}
	}
	phase := v1alpha1.SandboxPhase("")
	for _, s := range r.seen[id] {
		if order[s.Status.Phase] < order[phase] {
			out = append(out, fmt.Sprintf("went from %s back to %s", phase, s.Status.Phase))
		}
		phase = s.Status.Phase
		note("uid", s.UID)
		note("end", s.Spec.End)
		note("stop record", s.Status.Stop)
		note("endedAt", s.Status.EndedAt)
		note("fencedAt", s.Status.FencedAt)
	}
	for what, values := range written {
		if len(values) != 1 {
			out = append(out, fmt.Sprintf("%d values of %s, want one: %v", len(values), what, values))
		}
	}
	if len(written) != 5 || phase != v1alpha1.SandboxEnded {
		out = append(out, fmt.Sprintf("phase %q at last, and %d things on record, want Ended and 5", phase, len(written)))
	}
	return out
}
