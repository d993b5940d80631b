package supervise

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is also every process that the tests start.
func TestMain(m *testing.M) {
	switch os.Getenv("SUPERVISE_HELPER") {
	case "":
		goleak.VerifyTestMain(m)
	case "sleep", "sleep-fail", "ordered", "talk", "leaves-a-child": // until told to stop
		wait := make(chan os.Signal, 1)
		signal.Notify(wait, syscall.SIGTERM)
		switch os.Getenv("SUPERVISE_HELPER") {
		case "talk":
			fmt.Print(strings.Repeat(talk, talkLines))
		case "leaves-a-child":
			child := exec.Command("sleep", "20") // longer than the test waits
			child.Stdout = os.Stdout
			if err := child.Start(); err != nil {
				os.Exit(1)
			}
		}
		fmt.Println("sleeping")
		<-wait
		fmt.Println("told to stop")
		if file := os.Getenv("SUPERVISE_ORDER"); file != "" {
			f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				os.Exit(1)
			}
			fmt.Fprintln(f, os.Getpid())
		}
		if os.Getenv("SUPERVISE_HELPER") == "sleep-fail" {
			os.Exit(1)
		}
	case "stubborn":
		never := make(chan os.Signal, 1)
		signal.Notify(never, syscall.SIGUSR1)
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ignoring")
		<-never
	case "die":
		for i := range 30 {
			fmt.Println("line", i)
		}
		os.Exit(3)
	case "parent": // starts a child, prints its pid, sleeps
		g := NewGroup(Options{})
		if err := g.Start(context.Background(), Spec{Name: "child", Path: os.Args[0], Env: []string{"SUPERVISE_HELPER=sleep"}, LogFile: os.Args[1]}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(g.Status()[0].PID)
		select {}
	}
}

type group struct {
	*Group
	dir     string
	changes chan struct{}
}

func newGroup(t *testing.T) *group {
	t.Helper()
	g := &group{dir: t.TempDir(), changes: make(chan struct{}, 1000)}
	g.Group = NewGroup(Options{
		MinPause: time.Millisecond, MaxPause: 5 * time.Millisecond,
		Log:      slog.New(slog.DiscardHandler),
		OnChange: func() { g.changes <- struct{}{} },
	})
	t.Cleanup(g.Close)
	return g
}

func (g *group) spec(name, mode string) Spec {
	return Spec{
		Name: name, Path: os.Args[0], Args: []string{"-test.run=^$"},
		Env: []string{"SUPERVISE_HELPER=" + mode}, LogFile: filepath.Join(g.dir, name+".log"),
	}
}

// logHas is a Ready that waits for a line in the log.
func logHas(file, line string) func(context.Context) error {
	return func(context.Context) error {
		b, _ := os.ReadFile(file)
		if !strings.Contains(string(b), line) {
			return errors.New("not yet")
		}
		return nil
	}
}

func (g *group) one(t *testing.T, name string) Status {
	t.Helper()
	for _, s := range g.Status() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no process %s", name)
	return Status{}
}

// until looks at a process after every change until ok says so.
func (g *group) until(t *testing.T, name string, ok func(Status) bool) Status {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	for {
		if s := g.one(t, name); ok(s) {
			return s
		}
		select {
		case <-g.changes:
		case <-deadline.C:
			t.Fatalf("%s stays %+v", name, g.one(t, name))
		}
	}
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestStartIsReadyAndStopIsGone(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	spec := g.spec("a", "sleep")
	spec.Ready = logHas(spec.LogFile, "sleeping")
	if err := g.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	s := g.one(t, "a")
	if s.State != Running || !alive(s.PID) || s.Restarts != 0 {
		t.Errorf("after Start: %+v", s)
	}
	if err := g.Start(t.Context(), spec); err == nil {
		t.Error("a second process got the same name")
	}
	g.Stop("a")
	if after := g.one(t, "a"); after.State != Stopped || after.PID != 0 || alive(s.PID) {
		t.Errorf("after Stop: %+v, alive %v", after, alive(s.PID))
	}
	if log, _ := os.ReadFile(spec.LogFile); !strings.Contains(string(log), "told to stop") {
		t.Errorf("the process was not told to stop: %q", log)
	}
}

func TestDeathWhileStartingShowsTheLog(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	spec := g.spec("a", "die")
	spec.Ready = func(context.Context) error { return errors.New("never") }
	if err := os.WriteFile(spec.LogFile, []byte("of an earlier run\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := g.Start(t.Context(), spec)
	var se *StartError
	if !errors.As(err, &se) {
		t.Fatalf("Start: %v", err)
	}
	lines := strings.Split(se.Tail, "\n")
	if len(lines) != tailLines || lines[0] != "line 10" || lines[19] != "line 29" {
		t.Errorf("tail %q, want the last 20 lines", se.Tail)
	}
	if msg := err.Error(); !strings.Contains(msg, "exit status 3") || !strings.Contains(msg, spec.LogFile) {
		t.Errorf("error %q lacks the reason or the log's path", msg)
	}
	if s := g.one(t, "a"); s.State != Stopped || s.Restarts != 0 {
		t.Errorf("a process that never ran is to be stopped, and is %+v", s)
	}
}

func TestNotReadyInTime(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	spec := g.spec("a", "stubborn")
	spec.ReadyTimeout = 100 * time.Millisecond
	spec.Ready = func(context.Context) error { return errors.New("port closed") }
	err := g.Start(t.Context(), spec)
	if !errors.Is(err, errNotReady) || !strings.Contains(err.Error(), "port closed") {
		t.Errorf("Start: %v", err)
	}
	if s := g.one(t, "a"); s.PID != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

func TestMissingProgram(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	if err := g.Start(t.Context(), Spec{Name: "a", Path: "/nowhere/x", LogFile: filepath.Join(g.dir, "l")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Start: %v", err)
	}
}

func TestDeadProcessIsStartedAgain(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	if err := g.Start(t.Context(), g.spec("a", "sleep")); err != nil {
		t.Fatal(err)
	}
	pid := g.one(t, "a").PID
	for n := 1; n <= 3; n++ {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s := g.until(t, "a", func(s Status) bool { return s.State == Running && s.Restarts == n })
		if s.PID == pid || !strings.Contains(s.LastExit, "killed") {
			t.Errorf("restart %d: %+v", n, s)
		}
		pid = s.PID
	}
}

func TestStopDuringThePause(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	g.o.MinPause, g.o.MaxPause = time.Hour, time.Hour
	if err := g.Start(t.Context(), g.spec("a", "sleep")); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(g.one(t, "a").PID, syscall.SIGKILL)
	g.until(t, "a", func(s Status) bool { return s.State == Waiting })
	if s := g.Check(t.Context())[0]; !strings.Contains(s.Problem, "killed") || !strings.Contains(s.Problem, g.spec("a", "").LogFile) {
		t.Errorf("what it died of, and its log, are not told: %+v", s)
	}
	g.Stop("a")
	if s := g.one(t, "a"); s.State != Stopped {
		t.Errorf("%+v", s)
	}
}

func TestStubbornProcessIsKilled(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	spec := g.spec("a", "stubborn")
	spec.StopTimeout = 50 * time.Millisecond
	spec.Ready = logHas(spec.LogFile, "ignoring")
	if err := g.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	pid := g.one(t, "a").PID
	g.Stop("a")
	if alive(pid) {
		t.Error("still alive")
	}
}

// The last started stops first, and is gone before the one before it is told to.
func TestStopAllGoesBackwards(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	for _, name := range []string{"a", "b", "c"} {
		spec := g.spec(name, "ordered")
		spec.Env = append(spec.Env, "SUPERVISE_ORDER="+filepath.Join(g.dir, "order"))
		spec.Ready = logHas(spec.LogFile, "sleeping")
		if err := g.Start(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	pids := map[string]int{}
	for _, s := range g.Status() {
		pids[fmt.Sprint(s.PID)] = len(pids)
	}
	g.StopAll(t.Context())
	order, err := os.ReadFile(filepath.Join(g.dir, "order"))
	if err != nil {
		t.Fatal(err)
	}
	var told []int
	for pid := range strings.FieldsSeq(string(order)) {
		told = append(told, pids[pid])
	}
	if fmt.Sprint(told) != "[2 1 0]" {
		t.Errorf("order %v", told)
	}
}

func TestStopAllKillsWhenItMustNotWait(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	spec := g.spec("a", "stubborn")
	spec.StopTimeout = time.Hour
	spec.Ready = logHas(spec.LogFile, "ignoring")
	if err := g.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	g.StopAll(ctx)
	if s := g.one(t, "a"); s.PID != 0 {
		t.Errorf("%+v", s)
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	spec := g.spec("a", "sleep")
	ctx, cancel := context.WithCancel(t.Context())
	spec.Ready = func(context.Context) error { cancel(); return errors.New("not yet") }
	if err := g.Start(ctx, spec); !errors.Is(err, context.Canceled) {
		t.Errorf("Start: %v", err)
	}
	if s := g.one(t, "a"); s.State != Stopped || s.PID != 0 {
		t.Errorf("%+v", s)
	}
}

func TestCheckAsksTheProcess(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	asked := 0
	spec := g.spec("a", "sleep")
	spec.Ready = func(context.Context) error {
		if asked++; asked > 1 {
			return errors.New("unwell")
		}
		return nil
	}
	if err := g.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if s := g.Check(t.Context())[0]; s.Problem != "unwell" {
		t.Errorf("%+v", s)
	}
	g.Stop("a")
	if s := g.Check(t.Context())[0]; s.Problem != "is stopped" {
		t.Errorf("%+v", s)
	}
}

// The kernel ends the children of a supervisor that was killed.
func TestKilledSupervisorLeavesNoChild(t *testing.T) {
	t.Parallel()
	parent := exec.Command(os.Args[0], filepath.Join(t.TempDir(), "child.log"))
	parent.Env = append(os.Environ(), "SUPERVISE_HELPER=parent")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(line)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	deadline := time.Now().Add(10 * time.Second)
	for running(child) {
		if time.Now().After(deadline) {
			t.Fatal("the child lives on")
		}
	}
}

// running is false for a zombie: there may be no process that reaps it.
func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}
