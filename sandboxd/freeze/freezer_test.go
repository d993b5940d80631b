package freeze

import (
	"strings"
	"testing"
	"time"
)

// states lists the processes of the container that run, but for PID 1, the freezer and
// what lists them.
const states = `sh for p in /proc/[0-9]*; do s=$(sed 's/.*) //;s/ .*//' $p/stat 2>/dev/null); n=$(cat $p/comm 2>/dev/null); case $n in exe|sed|cat|'') ;; *) [ ${p#/proc/} = $$ ] || [ $(sed 's/.*) . //;s/ .*//' $p/stat) = $$ ] || echo $n:$s;; esac; done | sort`

// settle waits until nothing has a SIGSTOP pending (bit 18). What sleeps in the kernel, as
// for a disk, counts as frozen with one: it runs no code of its own before it stops, but
// what it asked the kernel for may still come. A process that was about to end has ended
// with the signal pending, and keeps it until its parent, which may be stopped, asks for it.
// What is stopped with all its threads may have got the signal twice.
const settle = `sh for p in /proc/[0-9]*; do while grep -qsE '^S(ig|hd)Pnd:.*[4-7c-f]....$' $p/status && grep -hs '^State:' $p/task/*/status | grep -qv '^State:.[TZX]'; do :; done; done`

func (c *container) running() (left []string) {
	c.t.Helper()
	c.want(settle)
	for one := range strings.SplitSeq(c.want(states), "|") {
		if name, state, ok := strings.Cut(one, ":"); ok && !strings.ContainsAny(state, "TtZX") {
			left = append(left, name)
		}
	}
	return left
}

// What ends as soon as it has started the next one is stopped like all else, although each
// look at the processes may miss both.
func TestChainsOfForks(t *testing.T) {
	c := newContainer(t)
	for range 4 {
		c.want(`run f() { echo >> chain; f & }; f`)
	}
	c.want("sh until [ -s chain ]; do :; done")
	for cycle := range 60 {
		c.want("freeze")
		c.want(settle)
		if a, b := c.want("sh wc -l < chain"), c.want("sh sleep 0.01; wc -l < chain"); a != b {
			t.Fatalf("cycle %d: a chain went on from %s to %s", cycle, a, b)
		}
		c.want("thaw")
	}
}

// A freeze that does not get ahead of such chains stops everything at once: nothing goes on,
// all that it stopped continues at the thaw, and what another program stopped does not.
func TestAllAtOnce(t *testing.T) {
	c := newContainer(t)
	stopped := c.want(`run exec sleep 1000`)
	loop := c.want(`run while :; do echo >> count; done`)
	for range 4 {
		c.want(`run f() { echo >> chain; f & }; f`)
	}
	c.want("sh kill -STOP " + stopped + `; until grep -q '^State:.T' /proc/` + stopped + `/status && [ -s chain ] && [ -s count ]; do :; done`)
	c.want("atonce")
	lines := "sh cat chain count | wc -l"
	for cycle := range 30 {
		c.want("freeze")
		if a, b := c.want(lines), c.want("sh sleep 0.01; cat chain count | wc -l"); a != b {
			t.Fatalf("cycle %d: something went on from %s to %s", cycle, a, b)
		}
		chain, count := c.want("sh wc -l < chain"), c.want("sh wc -l < count")
		c.want("thaw")
		c.want("sh until [ $(wc -l < chain) != " + chain + " ] && [ $(wc -l < count) != " + count + " ]; do :; done")
		if state := c.want(`sh sed -n 's/^State:.\(.\).*/\1/p' /proc/` + stopped + `/status`); state != "T" {
			t.Fatalf("cycle %d: what was stopped before is in state %s", cycle, state)
		}
	}
	c.want("sh kill -0 " + loop)
}

// Loops, a shell with jobs, a shell on a terminal, and one that starts processes as fast
// as it can: all stand still, and none notices. A hundred cycles and more.
func TestFreezeAndThaw(t *testing.T) {
	c := newContainer(t)
	c.want(`run exec >loops 2>&1; set -m; for i in 1 2 3; do (while :; do :; done) & done; sleep 1000 & wait; echo "wait returned"`)
	c.want(`run exec >forks 2>&1; while :; do /bin/true; (exit 0); done`)
	c.want(`pty while :; do sleep 0.01; done`)
	c.want(`run exec 2>/dev/null; n=0; while :; do n=$((n+1)); echo $n > count; done`)
	c.want(`sh for i in $(seq 100); do [ -s count ] && exit; sleep 0.05; done`)
	var longest time.Duration
	for cycle := range 120 {
		took, err := time.ParseDuration(c.want("freeze"))
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, took)
		if cycle%10 == 0 {
			if left := c.running(); len(left) > 0 {
				t.Fatalf("cycle %d: these run: %v", cycle, left)
			}
			if a, b := c.want("sh cat count"), c.want("sh sleep 0.02; cat count"); a != b {
				t.Fatalf("cycle %d: a loop counted on from %s to %s", cycle, a, b)
			}
		}
		c.want("thaw")
	}
	if said := c.want(`sh cat loops forks; grep -ai stopped pty; true`); said != "" {
		t.Errorf("shells have noticed: %s", said)
	}
	if left := c.running(); len(left) < 7 {
		t.Errorf("only these run on: %v", left)
	}
	t.Logf("the longest freeze took %s", longest)
}

// What was stopped before a freeze is stopped after the thaw; the rest runs.
func TestStoppedBefore(t *testing.T) {
	c := newContainer(t)
	stopped := c.want(`run exec sleep 1000`)
	running := c.want(`run exec sleep 1000`)
	c.want("sh kill -STOP " + stopped + `; until grep -q '^State:.T' /proc/` + stopped + `/status; do :; done`)
	c.want("freeze")
	c.want("thaw")
	state := func(pid string) string { return c.want(`sh sed -n 's/^State:.\(.\).*/\1/p' /proc/` + pid + `/status`) }
	if a, b := state(stopped), state(running); a != "T" || b == "T" {
		t.Errorf("that which was stopped before is in state %s, the other in %s", a, b)
	}
}

// What is killed does not run on before: neither what was frozen, nor what runs, nor what
// a program in the sandbox had stopped.
func TestKill(t *testing.T) {
	c := newContainer(t)
	pid := c.want(`run trap 'echo ended >> heard' TERM CONT EXIT; while :; do echo >> count; done`)
	stopped := c.want(`run exec sleep 1000`)
	c.want("sh kill -STOP " + stopped + `; until [ -s count ]; do :; done`)
	c.want("freeze")
	loops := c.want("sh wc -l < count")
	c.want("kill")
	for _, p := range []string{pid, stopped} {
		c.want("sh while kill -0 " + p + " 2>/dev/null; do :; done")
	}
	if now := c.want("sh wc -l < count"); now != loops {
		t.Errorf("the loop counted on from %s to %s", loops, now)
	}
	if heard := c.want("sh cat heard 2>/dev/null; true"); heard != "" {
		t.Errorf("a program has heard of its end: %s", heard)
	}
}

// What was continued is found and stopped by the next look, and goes on with the rest;
// what keeps still has not escaped, but what has run between two looks has.
func TestRefreeze(t *testing.T) {
	c := newContainer(t)
	pid := c.want(`run exec sh -c 'while :; do :; done'`)
	state := func() string { return c.want(`sh sed -n 's/^State:.\(.\).*/\1/p' /proc/` + pid + `/status`) }
	c.want("freeze")
	if escaped := c.want("refreeze"); escaped != "false" {
		t.Errorf("of what keeps still: escaped is %s", escaped)
	}
	c.want("sh kill -CONT " + pid)
	if s := state(); s != "R" {
		t.Fatalf("it does not go on: %s", s)
	}
	if escaped := c.want("refreeze"); escaped != "true" {
		t.Errorf("of what was continued: escaped is %s", escaped)
	}
	if s := state(); s != "T" {
		t.Errorf("it goes on: %s", s)
	}
	halts := "; until grep -q '^State:.T' /proc/"
	used := `$(cut -d ' ' -f 14 /proc/` + pid + `/stat)`
	c.want("sh a=" + used + "; kill -CONT " + pid + "; until [ " + used + " -gt $((a+5)) ]; do :; done; kill -STOP " + pid + halts + pid + "/status; do :; done")
	if escaped := c.want("refreeze"); escaped != "true" {
		t.Errorf("of what has run and was stopped again: escaped is %s", escaped)
	}
	started := c.want("run exec sleep 1000")
	c.want("sh kill -STOP " + started + halts + started + "/status; do :; done")
	if escaped := c.want("refreeze"); escaped != "true" {
		t.Errorf("of what was started and stopped since: escaped is %s", escaped)
	}
	if escaped := c.want("refreeze"); escaped != "false" {
		t.Errorf("of what keeps still since: escaped is %s", escaped)
	}
	c.want("thaw")
	if s := state(); s != "R" {
		t.Errorf("after the thaw it is in state %s", s)
	}
}

// A process has escaped that runs, has run, or was started since the last list; what a probe
// starts has not.
func TestEscaped(t *testing.T) {
	p := func(pid, parent int, s state, used uint64) seen {
		return seen{process{pid, uint64(pid)}, parent, s, used}
	}
	for _, c := range []struct {
		what  string
		more  []seen
		first bool // there is no list before
		want  bool
	}{
		{what: "all is as before"},
		{what: "a probe's command and what it starts run", more: []seen{p(20, 0, running, 1), p(21, 20, running, 1), p(22, 21, halted, 1)}},
		{what: "one runs", more: []seen{p(10, 7, running, 5)}, want: true},
		{what: "one runs at the first list", more: []seen{p(10, 7, running, 5)}, first: true, want: true},
		{what: "one has run", more: []seen{p(11, 10, halted, 6)}, want: true},
		{what: "one was started, and has stopped", more: []seen{p(12, 11, halted, 0)}, want: true},
		{what: "one was started, and its parent has ended", more: []seen{p(12, 1, halted, 0)}, want: true},
		{what: "all stand still at the first list", more: []seen{p(12, 11, halted, 0)}, first: true},
		{what: "sandboxd and the first process run", more: []seen{p(1, 0, running, 100), p(7, 1, running, 100)}},
	} {
		f := &Freezer{self: 7}
		all := map[int]seen{}
		for _, s := range []seen{p(1, 0, running, 9), p(7, 1, running, 9), p(10, 7, halted, 5), p(11, 10, halted, 5)} {
			all[s.pid] = s
		}
		if !c.first {
			f.still = f.allHalted(all)
		}
		for _, s := range c.more {
			all[s.pid] = s
		}
		if got := f.escaped(all); got != c.want {
			t.Errorf("%s: escaped is %v", c.what, got)
		}
	}
}

// A child is never seen stopped by a parent that runs: a supervisor that asks for stops
// (WUNTRACED) hears of none.
func TestParentsHearOfNoStop(t *testing.T) {
	c := newContainer(t)
	c.want("supervise")
	c.want(`sh until [ $(pgrep -fc 'while :') -ge 8 ]; do sleep 0.02; done`)
	for range 100 {
		c.want("freeze")
		c.want("thaw")
	}
	if heard := c.want("sh cat heard 2>/dev/null; true"); heard != "" {
		t.Errorf("a parent heard: %s", heard)
	}
}

// The command's name may hold anything.
func TestParseStat(t *testing.T) {
	line := "7 (a) T 1 (b) S 3 7 7 0 -1 4194560 1 0 0 0 4 3 0 0 20 0 1 0 12345 0 0\n"
	got, err := parseStat([]byte(line))
	if err != nil || got != (stat{running, 3, 12345, 7}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "7 (a", "7 (a) S 3", "7 (a) SS 3 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345", "7 (a) S x 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 0"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q parses", bad)
		}
	}
}
