package sandboxd

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/processpb"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// result is what a stream of events came to.
type result struct {
	pid            uint32
	stdout, stderr strings.Builder
	pty            strings.Builder
	keepalives     int
	end            *processpb.ProcessEvent_EndEvent
}

func (r *result) take(event *processpb.ProcessEvent) {
	switch e := event.GetEvent().(type) {
	case *processpb.ProcessEvent_Start:
		r.pid = e.Start.GetPid()
	case *processpb.ProcessEvent_Data:
		r.stdout.Write(e.Data.GetStdout())
		r.stderr.Write(e.Data.GetStderr())
		r.pty.Write(e.Data.GetPty())
	case *processpb.ProcessEvent_Keepalive:
		r.keepalives++
	case *processpb.ProcessEvent_End:
		r.end = e.End
	}
}

type started struct {
	*connect.ServerStreamForClient[processpb.StartResponse]
	result
	cancel context.CancelFunc
}

func shell(script string) *processpb.StartRequest {
	return &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}}}
}

// start starts and returns after the first event.
func (a *agent) start(req *processpb.StartRequest, headers ...string) *started {
	a.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a.t.Cleanup(cancel)
	request := connect.NewRequest(req)
	for i := 0; i < len(headers); i += 2 {
		request.Header().Set(headers[i], headers[i+1])
	}
	stream, err := a.processes.Start(ctx, request)
	if err != nil {
		a.t.Fatal(err)
	}
	s := &started{ServerStreamForClient: stream, cancel: cancel}
	if s.Receive() {
		s.take(s.Msg().GetEvent())
	}
	return s
}

// wait receives the rest.
func (s *started) wait() *result {
	for s.Receive() {
		s.take(s.Msg().GetEvent())
	}
	_ = s.Close()
	return &s.result
}

func pid(pid uint32) *processpb.ProcessSelector {
	return &processpb.ProcessSelector{Selector: &processpb.ProcessSelector_Pid{Pid: pid}}
}

func stdin(text string) *processpb.ProcessInput {
	return &processpb.ProcessInput{Input: &processpb.ProcessInput_Stdin{Stdin: []byte(text)}}
}

func TestOutputAndExit(t *testing.T) {
	a := newAgent(t, Options{})
	r := a.start(shell("echo out; echo err >&2; exit 3")).wait()
	if r.stdout.String() != "out\n" || r.stderr.String() != "err\n" {
		t.Errorf("output %q and %q", r.stdout.String(), r.stderr.String())
	}
	if r.end.GetExitCode() != 3 || !r.end.GetExited() || r.end.GetStatus() != "exit status 3" || r.end.GetError() != "exit status 3" {
		t.Errorf("end %v", r.end)
	}
	if r := a.start(shell("true")).wait(); r.end == nil || r.end.Error != nil || r.end.GetStatus() != "exit status 0" {
		t.Errorf("end of true: %v", r.end)
	}
}

// The bytes on the wire are those that SDKs parse.
func TestWireForm(t *testing.T) {
	a := newAgent(t, Options{})
	message := `{"process":{"cmd":"/bin/sh","args":["-c","printf hi; exit 3"]},"unknown":1}`
	frame := "\x00\x00\x00\x00" + string(rune(len(message))) + message
	res, body := a.do("POST", "/process.Process/Start", frame, "Content-Type", "application/connect+json", "Connect-Protocol-Version", "1")
	body = strings.ReplaceAll(body, " ", "") // protojson puts spaces as it likes
	for _, want := range []string{`{"event":{"start":{"pid":`, `{"event":{"data":{"stdout":"aGk="}}}`, `{"event":{"end":{"exitCode":3,"exited":true,"status":"exitstatus3","error":"exitstatus3"}}}`, "\x02\x00\x00\x00\x02{}"} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not in %q", want, body)
		}
	}
	if res.StatusCode != 200 || res.ProtoMajor != 1 {
		t.Errorf("status %d over HTTP/%d", res.StatusCode, res.ProtoMajor)
	}
	// Errors of streams are a frame, those of unary calls a status.
	message = `{"process":{"cmd":"/no/such/program"}}`
	frame = "\x00\x00\x00\x00" + string(rune(len(message))) + message
	res, body = a.do("POST", "/process.Process/Start", frame, "Content-Type", "application/connect+json")
	if res.StatusCode != 200 || !strings.HasPrefix(body, "\x02") || !strings.Contains(body, `"code":"invalid_argument"`) {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	res, body = a.do("POST", "/process.Process/SendSignal", `{"process":{"pid":4000000},"signal":"SIGNAL_SIGKILL"}`, "Content-Type", "application/json")
	if res.StatusCode != 404 || !strings.Contains(body, `"code":"not_found"`) {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

func TestEnvironmentAndDirectory(t *testing.T) {
	a := newAgent(t, Options{Environ: []string{"FROM_IMAGE=image", "SANDBOXD_ENV=FROM_IMAGE", "SANDBOXD_INIT_KEY=hidden"}})
	a.want(204, "", "POST", "/init", `{"envVars":{"A":"init","B":"init"}}`)
	req := shell(`echo "$FROM_IMAGE $A $B [$SANDBOXD_INIT_KEY]"; pwd`)
	dir := t.TempDir()
	req.Process.Envs, req.Process.Cwd = map[string]string{"B": "request ✓"}, &dir
	if r := a.start(req).wait(); r.stdout.String() != "image init request ✓ []\n"+dir+"\n" {
		t.Errorf("%q", r.stdout.String())
	}
	missing := filepath.Join(dir, "none")
	req.Process.Cwd = &missing
	s := a.start(req)
	wantCode(t, "a missing directory", s.Err(), connect.CodeInvalidArgument)
	s.wait()
}

// A command gets PATH, the image's variables that were named, its user's, E2B's, those
// of /init and of the request, later ones over earlier ones, and nothing else of
// sandboxd's own environment.
func TestEnvironmentOfACommand(t *testing.T) {
	a := newAgent(t, Options{RunDir: t.TempDir(), Environ: []string{
		"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/nowhere", "A=image", "KUBERNETES_SERVICE_HOST=10.0.0.1", "HOSTNAME=pod",
		"SANDBOXD_INIT_KEY=hidden", "SANDBOXD_ENV=LANG,A HOME MISSING SANDBOXD_INIT_KEY",
	}})
	user := users.Database{}.Own()
	want := []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "A=image", "HOME=" + user.Home, "USER=" + user.Name, "LOGNAME=" + user.Name, "E2B_SANDBOX=true"}
	req := &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "/usr/bin/env"}}
	a.wantLines("before /init", req, want...)
	a.want(204, "", "POST", "/init", `{"envVars":{"A":"init","B":"init","C":"init","E2B_SANDBOX":"false","E2B_SANDBOX_ID":"forged"}}`,
		"Sandlane-Sandbox-Id", "sandbox", "Sandlane-Template-Id", "base")
	req.Process.Envs = map[string]string{"B": "request", "USER": "request", "D": "request"}
	a.wantLines("after /init", req, "PATH=/usr/bin:/bin", "LANG=C.UTF-8", "A=init", "B=request", "C=init", "D=request",
		"HOME="+user.Home, "USER=request", "LOGNAME="+user.Name, "E2B_SANDBOX=false", "E2B_SANDBOX_ID=sandbox", "E2B_TEMPLATE_ID=base")
}

// wantLines runs a command and compares the lines of its output, in any order.
func (a *agent) wantLines(what string, req *processpb.StartRequest, want ...string) {
	a.t.Helper()
	got := strings.Split(strings.TrimSpace(a.start(req).wait().stdout.String()), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		a.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// An image or a pod without PATH does not leave commands without one.
func TestPathOfACommand(t *testing.T) {
	a := newAgent(t, Options{Environ: []string{"PATH="}})
	r := a.start(&processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "env"}}).wait()
	if !strings.Contains(r.stdout.String(), "PATH=/usr/local/sbin:") {
		t.Errorf("%q", r.stdout.String())
	}
}

func TestStdin(t *testing.T) {
	a := newAgent(t, Options{})
	s := a.start(shell("cat; echo over"))
	for _, text := range []string{"ä\x00", "b\n"} {
		if _, err := a.processes.SendInput(t.Context(), connect.NewRequest(&processpb.SendInputRequest{Process: pid(s.pid), Input: stdin(text)})); err != nil {
			t.Fatal(err)
		}
	}
	stream := a.processes.StreamInput(t.Context())
	for _, m := range []*processpb.StreamInputRequest{
		{Event: &processpb.StreamInputRequest_Start{Start: &processpb.StreamInputRequest_StartEvent{Process: pid(s.pid)}}},
		{Event: &processpb.StreamInputRequest_Keepalive{Keepalive: &processpb.StreamInputRequest_KeepAlive{}}},
		{Event: &processpb.StreamInputRequest_Data{Data: &processpb.StreamInputRequest_DataEvent{Input: stdin("c\n")}}},
	} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stream.CloseAndReceive(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.processes.CloseStdin(t.Context(), connect.NewRequest(&processpb.CloseStdinRequest{Process: pid(s.pid)})); err != nil {
		t.Fatal(err)
	}
	if r := s.wait(); r.stdout.String() != "ä\x00b\nc\nover\n" {
		t.Errorf("%q", r.stdout.String())
	}
	req := shell("cat; read x; exec sleep 60")
	req.Stdin = new(false)
	s = a.start(req)
	_, err := a.processes.SendInput(t.Context(), connect.NewRequest(&processpb.SendInputRequest{Process: pid(s.pid), Input: stdin("x")}))
	wantCode(t, "input without stdin", err, connect.CodeFailedPrecondition)
	s.cancel()
	s.wait()
}

// A writer that is cut off by its deadline does not hold the next one.
func TestStdinBackPressure(t *testing.T) {
	a := newAgent(t, Options{})
	s := a.start(shell("read go < " + fifo(t) + "; cat > /dev/null"))
	for range 2 {
		req := connect.NewRequest(&processpb.SendInputRequest{Process: pid(s.pid), Input: stdin(strings.Repeat("x", 1<<20))})
		req.Header().Set("Connect-Timeout-Ms", "100") // the server's deadline, not this client's
		_, err := a.processes.SendInput(t.Context(), req)
		wantCode(t, "a full pipe", err, connect.CodeDeadlineExceeded)
	}
	s.cancel()
	s.wait()
}

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// alive reports whether the process of a pid file lives and is no zombie.
func alive(pidFile string) bool {
	text, _ := os.ReadFile(pidFile)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(n) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestSignalReachesTheGroup(t *testing.T) {
	a := newAgent(t, Options{})
	child := filepath.Join(t.TempDir(), "child")
	s := a.start(shell("sleep 300 & echo $! > " + child + "; wait"))
	eventually(t, "the child lives", func() bool { return alive(child) })
	if _, err := a.processes.SendSignal(t.Context(), connect.NewRequest(&processpb.SendSignalRequest{Process: pid(s.pid), Signal: processpb.Signal_SIGNAL_SIGKILL})); err != nil {
		t.Fatal(err)
	}
	if r := s.wait(); r.end.GetExitCode() != -1 || r.end.GetExited() || r.end.GetError() != "signal: killed" {
		t.Errorf("end %v", r.end)
	}
	eventually(t, "the child is gone", func() bool { return !alive(child) })
	_, err := a.processes.SendSignal(t.Context(), connect.NewRequest(&processpb.SendSignalRequest{Process: pid(s.pid), Signal: processpb.Signal_SIGNAL_SIGTERM}))
	wantCode(t, "a signal after the end", err, connect.CodeNotFound)
}

// A daemon that left the group and holds the output open must not keep a killed
// process's stream.
func TestKillWithDaemonHoldingOutput(t *testing.T) {
	a := newAgent(t, Options{})
	daemon := filepath.Join(t.TempDir(), "daemon")
	s := a.start(shell("setsid sh -c 'echo $$ > " + daemon + "; exec sleep 300' & sleep 300"))
	eventually(t, "the daemon lives", func() bool { return alive(daemon) })
	if _, err := a.processes.SendSignal(t.Context(), connect.NewRequest(&processpb.SendSignalRequest{Process: pid(s.pid), Signal: processpb.Signal_SIGNAL_SIGKILL})); err != nil {
		t.Fatal(err)
	}
	if r := s.wait(); r.end == nil {
		t.Error("no end")
	}
	text, _ := os.ReadFile(daemon)
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if n > 1 {
		_ = syscall.Kill(n, syscall.SIGKILL)
	}
}

// Requests that name no process, no input, no event or no known signal have E2B's code.
func TestKindsThatAreUnknown(t *testing.T) {
	a := newAgent(t, Options{})
	s := a.start(shell("read x"))
	ctx := t.Context()
	_, err := a.processes.SendInput(ctx, connect.NewRequest(&processpb.SendInputRequest{Process: pid(s.pid)}))
	wantCode(t, "no input", err, connect.CodeUnimplemented)
	_, err = a.processes.SendSignal(ctx, connect.NewRequest(&processpb.SendSignalRequest{Process: pid(s.pid), Signal: 1}))
	wantCode(t, "another signal", err, connect.CodeUnimplemented)
	_, err = a.processes.SendInput(ctx, connect.NewRequest(&processpb.SendInputRequest{}))
	wantCode(t, "no process", err, connect.CodeUnimplemented)
	pty := &processpb.ProcessInput{Input: &processpb.ProcessInput_Pty{Pty: []byte("x")}}
	_, err = a.processes.SendInput(ctx, connect.NewRequest(&processpb.SendInputRequest{Process: pid(s.pid), Input: pty}))
	wantCode(t, "terminal input without a terminal", err, connect.CodeFailedPrecondition)
	stream := a.processes.StreamInput(ctx)
	must(t, stream.Send(&processpb.StreamInputRequest{}))
	_, err = stream.CloseAndReceive()
	wantCode(t, "no event", err, connect.CodeUnimplemented)
	_, err = a.processes.SendInput(ctx, connect.NewRequest(&processpb.SendInputRequest{Process: pid(s.pid), Input: stdin("x\n")}))
	must(t, err)
	s.wait()
}
