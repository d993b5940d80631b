package fastpath

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/test/cmodule"
)

// rounds returns how many rounds a fuzzer runs: few by default, many if SANDLANE_FUZZ is
// full.
func rounds(few, many string) string {
	if os.Getenv("SANDLANE_FUZZ") == "full" {
		return many
	}
	return few
}

// With garbage in the routes the module gives the right answer or none, and does not read
// out of bounds.
func TestGarbageInTheRoutes(t *testing.T) {
	w := newWorld(t, 100)
	w.put(t, route(generatedID, "10.0.0.5"))
	program := cmodule.Build(t, cmodule.Sanitized...)
	// The program takes the table over with its first request; it has no trust for that yet.
	envoy := cmodule.Start(t, program, "run", w.folder)
	envoy.Ask(t, request("nobody", "80")...)
	_ = envoy.Cmd.Process.Kill()
	_ = envoy.Cmd.Wait()
	// The next program has the next number: trust that one, for as long as a test
	// may take.
	w.table.trust.term = w.table.control.load(offTerms) + 1
	w.table.renew() // the program's first request may come before the goroutine runs
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				w.table.renew()
			}
		}
	}()
	out, err := exec.Command(program, "scribble", w.folder, rounds("300000", "10000000"), "1").CombinedOutput()
	close(stop)
	<-done
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), " 0 answers") {
		t.Errorf("nothing was answered at all: %s", out)
	}
	t.Logf("%s", out)
}

// Once the gateway has taken a route or trust away and has waited for the worker, the
// reading answers nothing from it. The gateway acts at each step of a reading, whose stores
// are shown as late as a processor may show them.
func TestOrderOfAReading(t *testing.T) {
	out, err := exec.Command(cmodule.Order(t)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// Readings run beside removals and waits. A missing memory fence shows only where two
// processors run at once.
func TestTorture(t *testing.T) {
	out, err := exec.Command(cmodule.Build(t), "torture", rounds("1", "60")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
