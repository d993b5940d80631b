package e2b

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

const (
	stormProcesses = 2 // a Python process keeps one core busy
	stormClients   = 25
	stormIdle      = 12
	stormMaxPods   = 24 // so that clients wait for pods, too
	stormMark      = "storm-left-this"
)

// round is one line of storm.py.
type round struct {
	OK    bool      `json:"ok"`
	Error string    `json:"error"`
	Took  []float64 `json:"took"` // s: create, run, kill
}

// Fifty clients of the SDK create, run a command and kill, on a pool with room for half
// of them. All rounds succeed, and afterwards there are the pool's idle pods and nothing
// else.
func TestFiftySandboxes(t *testing.T) { sandboxes(t, 1) }

// The same twenty times each, which is too long for each change: `make test-all`.
func TestThousandSandboxes(t *testing.T) { sandboxes(t, 20) }

// sandboxes runs that many rounds for each client.
func sandboxes(t *testing.T, perClient int) {
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	m := newTeam(t, "storm", func(p *v1alpha1.SandboxPool) {
		p.Spec.Replicas, p.Spec.MaxPods = stormIdle, stormMaxPods
	})
	interpreter := python(ctx, t, "2.63.0")
	var mu sync.Mutex // guards rounds
	var rounds []round
	var clients sync.WaitGroup
	began := time.Now()
	for range stormProcesses {
		clients.Go(func() {
			err := storm(ctx, m, interpreter, perClient, func(r round) {
				mu.Lock()
				defer mu.Unlock()
				rounds = append(rounds, r)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	left := watchProcesses(t, stormMark, clients.Wait)
	took := time.Since(began)

	want := stormProcesses * stormClients * perClient
	creates, good := []float64{}, 0
	for _, r := range rounds {
		if !r.OK {
			t.Error(r.Error)
			continue
		}
		good++
		creates = append(creates, r.Took[0])
	}
	if good != want {
		t.Errorf("%d of %d rounds succeeded", good, want)
	}
	slices.Sort(creates)
	if n := len(creates); n > 0 {
		t.Logf("%d of %d rounds in %v, %.1f/s; creation p50 %.0f ms, p99 %.0f ms (waiting for pods included); at most %d of their processes at once",
			good, want, took.Round(100*time.Millisecond), float64(good)/took.Seconds(), 1000*creates[n/2], 1000*creates[n*99/100], left)
	}
	if left == 0 {
		t.Error("no process of a command was ever seen")
	}
	nothingLeft(t, m)
}

func storm(ctx context.Context, m team, interpreter string, perClient int, heard func(round)) error {
	cmd := exec.CommandContext(ctx, interpreter, filepath.Join("python", "storm.py"), fmt.Sprint(stormClients), fmt.Sprint(perClient), stormMark)
	cmd.Env = m.env()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var r round
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil || r.OK && len(r.Took) != 3 {
			fmt.Fprintln(&errs, lines.Text())
			continue
		}
		heard(r)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("storm.py: %w; it said:\n%s", err, errs.String())
	}
	if errs.Len() > 0 {
		return fmt.Errorf("storm.py said:\n%s", errs.String())
	}
	return nil
}

// env is the environment of an SDK that is the team's.
func (m team) env() []string {
	return append(os.Environ(), "E2B_API_KEY="+m.key, "E2B_API_URL="+shared.Up.GatewayURL, "E2B_SANDBOX_URL="+shared.Up.GatewayURL)
}

// watchProcesses returns the most processes of a name that there were at once
// until done returned.
func watchProcesses(t *testing.T, name string, done func()) (most int) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		done()
	}()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return most
		case <-tick.C:
			most = max(most, processes(t, name))
		}
	}
}

// processes counts those of a name on this machine, in whatever namespace.
func processes(t *testing.T, name string) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		text, _ := os.ReadFile(file) // it may have ended meanwhile
		if first, _, _ := strings.Cut(string(text), "\x00"); first == name {
			n++
		}
	}
	return n
}

// nothingLeft waits until the team has its idle pods, no sandbox that has not
// ended, and none of the processes of its commands.
func nothingLeft(t *testing.T, m team) {
	t.Helper()
	if a := m.ask(t, "GET", "/v2/sandboxes", ""); string(a.Body) != "[]\n" {
		t.Errorf("sandboxes are left: %v", a)
	}
	shared.WaitIdle(t, m.namespace, "base", stormIdle)
	shared.Eventually(t, 30*time.Second, "nothing to be left", func() (bool, string) {
		claimed, running := 0, 0
		for _, p := range shared.PodsOf(t, m.namespace) {
			if v1alpha1.PhaseOf(&p) != v1alpha1.PodIdle {
				claimed++
			}
		}
		var all v1alpha1.SandboxList
		if err := shared.Client.List(t.Context(), &all, client.MatchingFields{v1alpha1.FieldNamespace: m.namespace}); err != nil {
			t.Fatal(err)
		}
		for _, s := range all.Items {
			if s.Status.Phase != v1alpha1.SandboxEnded {
				running++
			}
		}
		of := processes(t, stormMark)
		return claimed+running+of == 0, fmt.Sprintf("%d pods that are not idle, %d sandboxes that have not ended, %d processes", claimed, running, of)
	})
}
