package sandboxd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A start command that fails is started again; once it ends with 0 it is not.
func TestStartCommandIsStartedAgain(t *testing.T) {
	dir := t.TempDir()
	// Each run adds a line; the third ends with 0.
	script := `echo run >> ` + dir + `/runs; [ $(wc -l < ` + dir + `/runs) -ge 3 ] && touch ` + dir + `/done && exit 0; exit 7`
	var log bytes.Buffer // written by sandboxd alone, and read once it has ended
	a := newAgent(t, Options{Command: []string{"/bin/sh", "-c", script}, Log: &log})
	awaitFile(t, filepath.Join(dir, "done"))
	a.stop()
	runs, err := os.ReadFile(filepath.Join(dir, "runs"))
	if err != nil || strings.Count(string(runs), "run") != 3 {
		t.Errorf("%q, %v", runs, err)
	}
	if strings.Count(log.String(), "exit status 7") != 2 {
		t.Errorf("the log does not tell both failures: %s", log.String())
	}
}

// The end of sandboxd ends the start command: by SIGTERM, and by SIGKILL after the grace.
func TestStartCommandEndsWithSandboxd(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		grace  time.Duration
	}{
		"terminated": {`trap 'touch $0/ended; exit 0' TERM; touch $0/runs; while :; do sleep 0.01; done`, patience},
		"killed":     {`trap '' TERM; touch $0/runs; while :; do sleep 0.01; done`, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a := newAgent(t, Options{Command: []string{"/bin/sh", "-c", c.script, dir}, Grace: c.grace})
			awaitFile(t, filepath.Join(dir, "runs"))
			a.stop()
			if _, err := os.Stat(filepath.Join(dir, "ended")); (err == nil) != (name == "terminated") {
				t.Errorf("ended by itself: %v", err)
			}
		})
	}
}

// What stands behind -- is the start command; other words without a flag are refused.
func TestStartCommandOfTheCommandLine(t *testing.T) {
	o, _, err := parse([]string{"--sudo", "--", "python3", "-m", "server", "--port", "1"}, os.Stderr)
	if err != nil || strings.Join(o.Command, " ") != "python3 -m server --port 1" {
		t.Errorf("%q, %v", o.Command, err)
	}
	if _, _, err := parse([]string{"python3"}, &bytes.Buffer{}); err == nil {
		t.Error("a word without -- is accepted")
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s does not come", path)
		}
	}
}
