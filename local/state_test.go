package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/local/node"
	"github.com/sandlane/sandlane/local/supervise"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"as it is":       {func(*Options) {}, ""},
		"any port":       {func(o *Options) { o.Port = 0 }, ""},
		"no pods":        {func(o *Options) { o.PoolSize = 0 }, ""},
		"port too high":  {func(o *Options) { o.Port = 65536 }, "--port 65536"},
		"negative port":  {func(o *Options) { o.Port = -1 }, "--port -1"},
		"negative pool":  {func(o *Options) { o.PoolSize = -1 }, "--pool-size -1"},
		"huge pool":      {func(o *Options) { o.PoolSize = 501 }, "--pool-size 501"},
		"negative idle":  {func(o *Options) { o.IdleTimeout = -1 }, "--idle-timeout"},
		"some isolation": {func(o *Options) { o.Isolation = "some" }, `--isolation "some"`},
		"eight gateways": {func(o *Options) { o.Gateways = 8 }, ""},
		"nine gateways":  {func(o *Options) { o.Gateways = 9 }, "--gateways 9"},
		"no gateway":     {func(o *Options) { o.Gateways = 0 }, "--gateways 0"},
		"short leases":   {func(o *Options) { o.Test = TestOptions{LeaseDuration: 2, LeaseRenewEvery: 1} }, ""},
		"half a lease":   {func(o *Options) { o.Test.LeaseDuration = 1 }, "set both"},
		"no renewal":     {func(o *Options) { o.Test = TestOptions{LeaseDuration: 3, LeaseRenewEvery: 2} }, "--lease-duration 3ns"},
		"TLS":            {func(o *Options) { o.TLS, o.Domain = true, DefaultDomain }, ""},
		"own domain":     {func(o *Options) { o.TLS, o.Domain = true, "e2b.my-company.test" }, ""},
		"domain alone":   {func(o *Options) { o.Domain = DefaultDomain }, "--domain sandlane.localhost: needs --tls"},
		"no domain":      {func(o *Options) { o.TLS = true }, `--domain ""`},
		"too wide":       {func(o *Options) { o.TLS, o.Domain = true, "localhost" }, "*.localhost"},
		"one label":      {func(o *Options) { o.TLS, o.Domain = true, "test" }, "two labels"},
		"with a port":    {func(o *Options) { o.TLS, o.Domain = true, "a.test:443" }, "without a port"},
		"with a dot":     {func(o *Options) { o.TLS, o.Domain = true, "a.test." }, `--domain "a.test."`},
		"upper case":     {func(o *Options) { o.TLS, o.Domain = true, "A.test" }, "lower case"},
		"wildcard":       {func(o *Options) { o.TLS, o.Domain = true, "*.a.test" }, `--domain "*.a.test"`},
		"address":        {func(o *Options) { o.TLS, o.Domain = true, "127.0.0.1" }, `--domain "127.0.0.1"`},
		"path":           {func(o *Options) { o.TLS, o.Domain = true, "../a.test" }, `--domain "../a.test"`},
		"long":           {func(o *Options) { o.TLS, o.Domain = true, strings.Repeat("a.", 94)+"ab" }, "--domain"},
		"long enough":    {func(o *Options) { o.TLS, o.Domain = true, strings.Repeat("a.", 94)+"a" }, ""},
		"no keys":        {func(o *Options) { o.NewAPIKey = nil }, "NewAPIKey"},
	} {
		o := Options{StateDir: "x", Port: 8080, Gateways: 1, PoolSize: 10, NewAPIKey: noKey}
		if err := o.Complete(); err != nil {
			t.Fatal(err)
		}
		tc.change(&o)
		err := o.Validate()
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestDefaultStateDir(t *testing.T) {
	t.Setenv("HOME", "/home/x")
	for xdg, want := range map[string]string{"": "/home/x/.local/state/sandlane", "/s": "/s/sandlane", "relative": "/home/x/.local/state/sandlane"} {
		t.Setenv("XDG_STATE_HOME", xdg)
		if got, err := DefaultStateDir(); got != want || err != nil {
			t.Errorf("XDG_STATE_HOME=%q: %q, %v; want %q", xdg, got, err, want)
		}
	}
}

// A state folder whose path is too long for sockets is refused, and nothing of it lies
// where other users can write.
func TestSocketsFitTheStateFolder(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for _, n := range []int{longestDir, longestDir + 1, 200} {
		dir := filepath.Join(base, strings.Repeat("a", 20), strings.Repeat("b", 200))[:n]
		s := newState(dir)
		if !strings.HasPrefix(s.run, dir+"/") {
			t.Errorf("the run folder %s is not below the state folder", s.run)
		}
		err := s.create()
		if n > longestDir {
			if err == nil || !strings.Contains(err.Error(), "--state") {
				t.Errorf("%d bytes: %v", n, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(s.gatewayRun("gateway-99"), 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", filepath.Join(s.gatewayRun("gateway-99"), "envoy-admin.sock"))
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		_ = l.Close()
	}
}

// What a list in another user's folder names is not killed.
func TestCleanTrustsNoOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make another user's folder")
	}
	t.Parallel()
	for name, prepare := range map[string]func(run string) error{
		"another's folder": func(run string) error { return errors.Join(os.Mkdir(run, 0o700), os.Chown(run, 65534, 65534)) },
		"open to others":   func(run string) error { return errors.Join(os.Mkdir(run, 0o700), os.Chmod(run, 0o777)) },
		"a link": func(run string) error {
			return errors.Join(os.Mkdir(run+".theirs", 0o700), os.Chown(run+".theirs", 65534, 65534), os.Symlink(run+".theirs", run))
		},
	} {
		s := newState(t.TempDir())
		bystander := exec.CommandContext(t.Context(), "sleep", "60")
		if err := errors.Join(prepare(s.run), bystander.Start()); err != nil {
			t.Fatal(err)
		}
		err := s.recordProcesses([]supervise.Status{{Name: "bystander", PID: bystander.Process.Pid}})
		if err != nil {
			t.Fatal(err)
		}
		if ended, err := s.clean(); err == nil || len(ended) > 0 || startTime(bystander.Process.Pid) == "" {
			t.Errorf("%s: ended %v, %v", name, ended, err)
		}
		_ = bystander.Process.Kill()
		_ = bystander.Wait()
	}
}

func TestCreateSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/nowhere"} {
		if err := newState(dir).create(); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "--state") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	s := newState(t.TempDir())
	if pid, err := s.running(); pid != 0 || err != nil {
		t.Errorf("before: %d, %v", pid, err)
	}
	unlock, err := s.lock(thisProcess())
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := s.running(); pid != os.Getpid() || err != nil {
		t.Errorf("locked: %d, %v", pid, err)
	}
	var running *ErrRunning
	if _, err := s.lock(thisProcess()); !errors.As(err, &running) || running.PID != os.Getpid() {
		t.Errorf("second lock: %v", err)
	}
	unlock()
	if pid, err := s.running(); pid != 0 || err != nil {
		t.Errorf("after: %d, %v", pid, err)
	}
}

func TestCleanEndsRecordedProcessesOnly(t *testing.T) {
	t.Parallel()
	s := newState(t.TempDir())
	var cmds []*exec.Cmd
	for range 2 {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		cmds = append(cmds, cmd)
	}
	if err := s.recordProcesses([]supervise.Status{{Name: "ours", PID: cmds[0].Process.Pid}}); err != nil {
		t.Fatal(err)
	}
	// The PID of the other is on the list as that of a process that is gone.
	b, err := os.ReadFile(s.processFile())
	if err != nil {
		t.Fatal(err)
	}
	other := recorded{Name: "other", PID: cmds[1].Process.Pid, Start: "1"}
	list := strings.Replace(string(b), "]", `,{"name":"other","pid":`+itoa(other.PID)+`,"start":"1"}]`, 1)
	if err := os.WriteFile(s.processFile(), []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	ended, err := s.clean()
	if err != nil || len(ended) != 1 || ended[0] != "ours" {
		t.Errorf("clean: %v, %v", ended, err)
	}
	if startTime(cmds[0].Process.Pid) != "" || startTime(cmds[1].Process.Pid) == "" {
		t.Error("the wrong process was ended")
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	ports, err := freePorts(20, 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		if seen[p] || p < firstPort || p > lastPort {
			t.Errorf("ports %v", ports)
		}
		seen[p] = true
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	used := l.Addr().(*net.TCPAddr).Port
	if err := checkPort(used); err == nil || !strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), itoa(used)) {
		t.Errorf("a port in use: %v", err)
	}
	if err := checkPort(ports[0]); err != nil {
		t.Errorf("a free port: %v", err)
	}
}

func TestIsolation(t *testing.T) {
	t.Parallel()
	cannot := errors.New("needs root")
	for _, tc := range []struct {
		wish    string
		can     error
		want    node.Isolation
		warning bool
	}{
		{IsolationAuto, nil, node.IsolationFull, false},
		{IsolationAuto, cannot, node.IsolationNone, true},
		{IsolationFull, nil, node.IsolationFull, false},
		{IsolationFull, cannot, "", false},
		{IsolationNone, nil, node.IsolationNone, true},
	} {
		said := ""
		got, err := isolation(tc.wish, func() error { return tc.can }, func(line string) { said += line })
		if got != tc.want || (got == "") != (err != nil) || strings.Contains(said, "WARNING") != tc.warning {
			t.Errorf("%s, %v: %q, %v, said %q", tc.wish, tc.can, got, err, said)
		}
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newState(dir)
	if err := Logs(t.Context(), dir, "", false, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "nothing was started") {
		t.Errorf("no logs: %v", err)
	}
	for name, lines := range map[string]int{"a": 30, "long-name": 2} {
		if err := writeFile(s.log(name), []byte(strings.Repeat(name+"\n", lines)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := Logs(t.Context(), dir, "", false, &out); err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("a         | a\n", logTail) + strings.Repeat("long-name | long-name\n", 2); out.String() != want {
		t.Errorf("all logs:\n%s", out.String())
	}
	out.Reset()
	if err := Logs(t.Context(), dir, "a", false, &out); err != nil || out.String() != strings.Repeat("a\n", 30) {
		t.Errorf("one log: %v\n%s", err, out.String())
	}
	if err := Logs(t.Context(), dir, "b", false, &out); err == nil || !strings.Contains(err.Error(), "there are a, long-name") {
		t.Errorf("unknown log: %v", err)
	}
}

func TestLogsFollowOverRotation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.log")
	r := &logReader{path: path}
	var out strings.Builder
	for _, content := range []string{"one\ntwo\npar", "one\ntwo\npart\n", "", "x\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.more(&out); err != nil {
			t.Fatal(err)
		}
	}
	// More comes between the last look and the rotation.
	rotated := errors.Join(os.WriteFile(path, []byte("x\ny\n"), 0o600), os.Rename(path, path+".1"), os.WriteFile(path, []byte("z\n"), 0o600))
	if rotated != nil {
		t.Fatal(rotated)
	}
	for range 2 {
		if err := r.more(&out); err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != "one\ntwo\npart\nx\ny\nz\n" {
		t.Errorf("followed %q", out.String())
	}
}

func TestRelay(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"progress":"a"}` + "\n" + `{"ready":{"gatewayURL":"u"}}` + "\n": "u",
		`{"progress":"a"}` + "\n" + `{"error":"bad"}` + "\n":              "bad",
		`{"progress":"a"}` + "\n":                                         errSilent.Error(),
	} {
		said := ""
		up, err := relay(strings.NewReader(in), func(line string) { said += line })
		got := up.GatewayURL
		if err != nil {
			got = err.Error()
		}
		if got != want || said != "a" {
			t.Errorf("%s: %q, said %q", in, got, said)
		}
	}
}

func TestRetryDump(t *testing.T) {
	t.Parallel()
	calls := 0
	err := retryDump(func() error {
		if calls++; calls < 3 {
			return fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
		}
		return errors.New("other")
	})
	if calls != 3 || err == nil || err.Error() != "other" {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{-1: "0s", 1234 * time.Millisecond: "1.2s", 61*time.Second + time.Millisecond: "1m1s"} {
		if got := short(d); got != want {
			t.Errorf("short(%v) = %q, want %q", d, got, want)
		}
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

func noKey(context.Context, *rest.Config) (string, error) { return "", nil }
