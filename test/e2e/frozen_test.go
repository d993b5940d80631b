package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// freezers is a stack with three gateways and pools whose pods can be frozen.
type freezers struct {
	*stack.Stack
	t       *testing.T // of the step
	ns, key string
}

// Sandboxes that are frozen, on three gateways: many requests resume one once, what runs
// in one takes no processor, and one ends like any other, also with its node.
func TestFrozenSandboxes(t *testing.T) {
	t.Parallel()
	takeTurn(t)
	state, before := stateDir(t), machine(t)
	f := &freezers{Stack: startWith(t, state, "--gateways", "3", "--pool-size", "0", "--isolation", "full"), t: t}
	f.ns, f.key = "default", f.Up.APIKey // of a stack of its own, which is stopped with all it has
	f.Pool(t, f.ns, "calm", 2, stack.WithMaxPods(2), stack.WithFreezer())
	for name, run := range map[string]func(){
		"one resume for many requests": f.manyRequests, "takes no processor, and ends": f.busyLoop, "its pod is deleted": f.podDeleted,
	} {
		t.Run(name, func(t *testing.T) { f.t = t; run() })
	}
	t.Run("the node stops", func(t *testing.T) {
		f.t = t
		id := f.create("calm", "")
		pod := f.ask(id, 0).PodUID
		f.rest(1, http.MethodPost, "/sandboxes/"+id+"/pause", "", http.StatusNoContent)
		if err := f.Stop(); err != nil {
			t.Fatal(err)
		}
		f.gone(pod)
		wantClean(t, state, before)
	})
}

// rest asks the REST API of a gateway.
func (f *freezers) rest(g int, method, path, body string, want int) stack.Answer {
	f.t.Helper()
	a, err := f.Up.Gateways[g].REST(f.t.Context(), nil, f.key, method, path, body)
	if err != nil || a.Status != want {
		f.t.Fatalf("%s %s: %v, %v, want %d", method, path, a, err, want)
	}
	return a
}

// create makes a sandbox of a pool; more is what the body has besides.
func (f *freezers) create(pool, more string) (id string) {
	f.t.Helper()
	a := f.rest(0, http.MethodPost, "/v2/sandboxes", fmt.Sprintf(`{"templateID":%q,"timeout":300%s}`, pool, more), http.StatusCreated)
	var made struct{ SandboxID string }
	if err := json.Unmarshal(a.Body, &made); err != nil || made.SandboxID == "" {
		f.t.Fatalf("%s: %v", a, err)
	}
	return made.SandboxID
}

// ask sends a request for the sandbox until it is answered: its server may just start.
func (f *freezers) ask(id string, g int) (e stack.Echo) {
	f.t.Helper()
	f.Eventually(f.t, time.Minute, id+" to answer", func() (bool, string) {
		a, err := f.send(id, g)
		if a.Echo != nil {
			e = *a.Echo
		}
		return a.Echo != nil, fmt.Sprint(a, err)
	})
	return e
}

func (f *freezers) send(id string, g int) (stack.Answer, error) {
	req, err := stack.Request{ID: id}.Build(f.t.Context(), f.Up.Gateways[g].URL)
	if err != nil {
		return stack.Answer{}, err
	}
	return stack.Send(nil, req)
}

// manyRequests sends 300 first requests for one frozen sandbox to three gateways at once:
// it is resumed once, and its process answers all.
func (f *freezers) manyRequests() {
	t := f.t
	const many = 300
	id := f.create("calm", `,"autoPause":true,"autoResume":{"enabled":true}`)
	process := f.ask(id, 0).Process
	f.rest(0, http.MethodPost, "/sandboxes/"+id+"/pause", "", http.StatusNoContent)
	was, _ := f.Sandbox(t, id)
	if !was.Spec.Paused {
		t.Fatalf("it is not paused: %+v", was.Spec)
	}
	var asked sync.WaitGroup
	answers, errs := make([]stack.Answer, many), make([]error, many)
	for i := range many {
		asked.Go(func() { answers[i], errs[i] = f.send(id, i%len(f.Up.Gateways)) })
	}
	asked.Wait()
	for i, a := range answers {
		if errs[i] != nil || a.Echo == nil || a.Echo.Process != process {
			t.Fatalf("request %d: %v, %v; want the process %s", i, a, errs[i], process)
		}
	}
	is, _ := f.Sandbox(t, id)
	if is.Spec.Paused || is.Generation != was.Generation+1 {
		t.Errorf("paused %v; its spec was written %d times", is.Spec.Paused, is.Generation-was.Generation)
	}
	f.rest(0, http.MethodDelete, "/sandboxes/"+id, "", http.StatusNoContent)
}

// busyLoop freezes what never waits, and ends it while it is frozen.
func (f *freezers) busyLoop() {
	t := f.t
	f.Pool(t, f.ns, "busy", 1, stack.WithMaxPods(1), stack.WithFreezer("while :; do :; done"))
	id := f.create("busy", "")
	// The pool's next pod would keep a processor busy for as long as the stack runs.
	none := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	if err := f.Client.Patch(t.Context(), &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "busy"}}, none); err != nil {
		t.Fatal(err)
	}
	pod := f.ask(id, 2).PodUID
	used := func(d time.Duration) int {
		before := f.ticks(pod)
		<-time.After(d)
		return f.ticks(pod) - before
	}
	f.Eventually(t, time.Minute, "the loop to use a processor", func() (bool, string) {
		n := used(200 * time.Millisecond)
		return n > 0, fmt.Sprint(n)
	})
	f.rest(1, http.MethodPost, "/sandboxes/"+id+"/pause", "", http.StatusNoContent)
	if n := used(3 * time.Second); n != 0 {
		t.Errorf("it took %d hundredths of a second while it was frozen", n)
	}
	f.rest(2, http.MethodDelete, "/sandboxes/"+id, "", http.StatusNoContent)
	f.Eventually(t, time.Minute, "the frozen sandbox to end", func() (bool, string) {
		s, _ := f.Sandbox(t, id)
		return s.Status.Phase == v1alpha1.SandboxEnded, string(s.Status.Phase)
	})
	f.gone(pod)
}

// podDeleted deletes the pod of a frozen sandbox, as an eviction does: its memory is lost, so
// the sandbox has failed, and says why.
func (f *freezers) podDeleted() {
	t := f.t
	id := f.create("calm", `,"autoPause":true,"autoResume":{"enabled":true}`)
	pod := f.ask(id, 0).PodUID
	f.rest(1, http.MethodPost, "/sandboxes/"+id+"/pause", "", http.StatusNoContent)
	s, _ := f.Sandbox(t, id)
	if err := f.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: s.Spec.Binding.PodName}}); err != nil {
		t.Fatal(err)
	}
	f.Eventually(t, time.Minute, "the sandbox to end", func() (bool, string) {
		s, _ := f.Sandbox(t, id)
		return s.Spec.End != nil && s.Spec.End.Reason == v1alpha1.EndFailed && strings.Contains(s.Spec.End.Message, "PausedPodLost"), fmt.Sprintf("%+v", s.Spec.End)
	})
	if a, err := f.send(id, 2); err != nil || a.Echo != nil || a.Status < http.StatusBadRequest {
		t.Errorf("a request is answered with %v, %v", a, err)
	}
	f.gone(pod)
}

// gone waits until no process of a pod is left.
func (f *freezers) gone(pod string) {
	f.t.Helper()
	shared.Eventually(f.t, time.Minute, "the processes of the frozen pod to end", func() (bool, string) {
		left := processesOf(f.t, pod)
		return len(left) == 0, fmt.Sprint(left)
	})
}

// ticks is the processor time of what runs in a pod beside sandboxd, which looks each
// second that all is stopped, in hundredths of a second.
func (f *freezers) ticks(pod string) (sum int) {
	f.t.Helper()
	found := 0
	for _, dir := range processesOf(f.t, pod) {
		text, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue // over since
		}
		if program, err := os.Readlink(filepath.Join(dir, "exe")); err != nil || filepath.Base(program) == "sandboxd" {
			continue
		}
		found++
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		for _, field := range fields[11:13] { // utime and stime of proc(5)
			n, err := strconv.Atoi(field)
			if err != nil {
				f.t.Fatalf("%s: %v", text, err)
			}
			sum += n
		}
	}
	if found < 2 {
		f.t.Fatalf("only %d processes in the pod %s", found, pod)
	}
	return sum
}

// processesOf are the folders of a pod's processes, which have its UID in their
// environment.
func processesOf(t *testing.T, pod string) (dirs []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains("\x00"+string(text), "\x00POD_UID="+pod+"\x00") {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	return dirs
}
