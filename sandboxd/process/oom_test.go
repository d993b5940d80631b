package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What is started has the higher score, and sandboxd its own again afterwards.
func TestOOMScore(t *testing.T) {
	const path = "/proc/self/oom_score_adj"
	read := func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	before := read()
	file, err := OpenScore()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newOOMScore(file)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	during := ""
	if err := s.start(func() error { during = read(); return syscall.EPERM }); !errors.Is(err, syscall.EPERM) {
		t.Errorf("the error of the start is %v", err)
	}
	if after := read(); during == before || after != before {
		t.Errorf("%s, then %s, then %s", before, during, after)
	}
}

// scores is a score's file that takes so many writes.
type scores struct {
	written []string
	takes   int
}

func (s *scores) Write(text []byte) (int, error) {
	if len(s.written) == s.takes {
		return 0, syscall.EACCES
	}
	s.written = append(s.written, string(text))
	return len(text), nil
}

func (s *scores) Close() error { return nil }

func TestOOMScoreOfWhatCannotBeSet(t *testing.T) {
	for _, c := range []struct {
		own, takes int
		want       string
	}{
		{0, 99, "100 0 100 0"}, {-997, 99, "-897 -997 -897 -997"}, {950, 99, "1000 950 1000 950"}, {1000, 99, "1000 1000 1000 1000"},
		{0, 0, ""}, {0, 1, "100"}, // never raised again once it cannot be lowered
	} {
		file := &scores{takes: c.takes}
		s := &oomScore{file: file, own: c.own}
		for range 2 {
			started := false
			if err := s.start(func() error { started = true; return nil }); err != nil || !started {
				t.Errorf("own %d: started %v, %v", c.own, started, err)
			}
		}
		if got := strings.Join(file.written, " "); got != c.want {
			t.Errorf("own %d: wrote %q, want %q", c.own, got, c.want)
		}
	}
	empty, err := os.Create(filepath.Join(t.TempDir(), "empty"))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := newOOMScore(empty); err == nil || s.file != nil {
		t.Error("a file without a number was taken")
	}
	if s, err := newOOMScore(nil); err != nil || s.file != nil {
		t.Errorf("without a file: %v", err)
	}
	if err := new(oomScore).start(func() error { return nil }); err != nil {
		t.Error(err)
	}
}

// ended runs a script and returns its state.
func endedState(t *testing.T, script string) *os.ProcessState {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	_ = cmd.Run()
	return cmd.ProcessState
}

// A kill for lack of memory is one command's, which died of SIGKILL and was started
// before it.
func TestOOMKillsAreAssigned(t *testing.T) {
	killed, inShell := endedState(t, "kill -9 $$"), endedState(t, "exit 137")
	other, terminated := endedState(t, "exit 1"), endedState(t, "kill -15 $$")
	for version, form := range map[string]string{"1": "oom_kill_disable 0\nunder_oom 0\noom_kill N\n", "2": "low 0\nhigh 0\nmax 31\noom 2\noom_kill N\noom_group_kill 9\n"} {
		path := filepath.Join(t.TempDir(), "events")
		set := func(n string) {
			if err := os.WriteFile(path, []byte(strings.Replace(form, "N", n, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		set("3")
		k, err := openOOMKills([]string{filepath.Join(t.TempDir(), "none"), path})
		if err != nil || k.count() != 3 {
			t.Fatalf("version %s: %d, %v", version, k.count(), err)
		}
		defer k.close()
		if k.ended(killed, 3) {
			t.Errorf("version %s: a kill of before is taken for its own", version)
		}
		set("5")
		for what, state := range map[string]*os.ProcessState{"an exit code": other, "another signal": terminated} {
			if k.ended(state, 3) {
				t.Errorf("version %s: %s is taken for a kill", version, what)
			}
		}
		if k.ended(killed, 5) {
			t.Errorf("version %s: one started after the kills is taken for one", version)
		}
		if !k.ended(killed, 3) || !k.ended(inShell, 3) {
			t.Errorf("version %s: the two kills are not two commands'", version)
		}
		if k.ended(killed, 3) {
			t.Errorf("version %s: a kill is two commands'", version)
		}
	}
	k, err := openOOMKills(nil)
	if err != nil || k.count() != 0 || k.ended(killed, 0) {
		t.Errorf("without a file: %d, %v", k.count(), err)
	}
}
