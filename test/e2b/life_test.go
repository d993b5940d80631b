package e2b

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// lifeStep is one line of life.py or life.mjs.
type lifeStep struct {
	Step          string
	Lines, Code   int
	Ended, Text   string
	Typed         bool
	Before, After float64
}

// life runs one of the scripts and returns its steps by name. When it says that
// it is streaming, streaming is called, and then it is told to go on.
func life(t *testing.T, m team, streaming func(), args ...string) map[string]lifeStep {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.WaitDelay = m.env(), 5*time.Second
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	steps := map[string]lifeStep{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var s lifeStep
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			fmt.Fprintln(&errs, lines.Text())
			continue
		}
		t.Log(lines.Text())
		steps[s.Step] = s
		if s.Step == "streaming" {
			streaming()
			if _, err := io.WriteString(in, "go on\n"); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the script ended with %v and said:\n%s", err, errs.String())
	}
	return steps
}

// A sandbox that the SDK made in a pool with an idle timeout stays while a command
// runs, whether it prints or not, and ends when nothing does.
func TestIdleTimeout(t *testing.T) {
	t.Parallel() // it waits more than it works
	m := newTeam(t, "idle", func(p *v1alpha1.SandboxPool) {
		p.Spec.IdleTimeout = &metav1.Duration{Duration: 3 * time.Second} // as in life.py
	})
	steps := life(t, m, nil, python(t.Context(), t, "2.63.0"), filepath.Join("python", "life.py"), "idle")
	if n := steps["printed"].Lines; n != 30 {
		t.Errorf("the command that prints gave %d of 30 lines", n)
	}
	if s, ran := steps["quiet"]; !ran || s.Code != 0 {
		t.Errorf("the quiet command: %+v", s)
	}
	if _, ran := steps["ended"]; !ran {
		t.Error("the unused sandbox did not end")
	}
}

// A gateway that goes away while a command streams its output. Where Envoy goes
// the stream ends, with an error that is the SDK's; where only the gateway goes,
// which no open stream needs, it does not. Either way the process lives on and is
// attached to again.
func TestGatewayRestarts(t *testing.T) {
	m := newTeam(t, "restart", func(*v1alpha1.SandboxPool) {})
	for _, s := range []struct {
		name string
		args []string
	}{
		{"Python", []string{python(t.Context(), t, "2.63.0"), filepath.Join("python", "life.py"), "restart"}},
		{"JS", []string{"node", filepath.Join("js", "life.mjs"), js(t.Context(), t, "2.51.0"), "restart"}},
	} {
		for process, ends := range map[string]bool{"envoy": true, "gateway": false} {
			t.Run(s.name+"/"+process, func(t *testing.T) {
				steps := life(t, m, func() { restart(t, process) }, s.args...)
				stream := steps["stream"]
				if ends && !stream.Typed || !ends && stream.Ended != "" {
					t.Errorf("the stream ended with %q (%s), of the SDK: %v", stream.Ended, stream.Text, stream.Typed)
				}
				if a := steps["attached"]; a.After <= a.Before {
					t.Errorf("the process counted to %v, and to %v after the restart", a.Before, a.After)
				}
				if _, ran := steps["killed"]; !ran {
					t.Error("the script did not come to its end")
				}
			})
		}
	}
}

// restart kills a process of the stack and waits until there is another one.
func restart(t *testing.T, process string) {
	t.Helper()
	pid := func() int {
		if err := shared.Reload(); err != nil {
			t.Fatal(err)
		}
		return shared.Up.Gateways[0].Pids[process]
	}
	former := pid()
	if err := syscall.Kill(former, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %s, pid %d: %v", process, former, err)
	}
	shared.Eventually(t, 30*time.Second, "another "+process, func() (bool, string) {
		now := pid()
		return now != 0 && now != former, fmt.Sprint(now)
	})
}
