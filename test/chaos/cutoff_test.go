package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/stack"
)

// slack is how much a busy machine may add to a bound.
const slack = 5 * time.Second

// The controller does not reach a gateway that reaches the API server. After some failed
// calls it revokes the gateway's lease, and the gateway acquires a new one, which counts as
// acknowledging its fences. So each release takes as long as that, and never longer than a
// lease and its grace. No sandbox is released for idleness meanwhile.
func TestGatewayCutOffFromTheController(t *testing.T) {
	const victims = 8
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 10, stack.WithIdleTimeout(0))
	shared.Pool(t, ns, "idle", 1, stack.WithIdleTimeout(4*time.Second))
	l := newLoad(t, ns+"/pool")
	away := shared.Up.Gateways[2]
	for i := range victims {
		id := fmt.Sprintf("released-%d", i)
		shared.Touch(t, id, l.pool)
		for _, g := range shared.Up.Gateways {
			l.hammer(g, 50*time.Millisecond, func() string { return id }, nil)
		}
	}
	arm(t, away.Name, "controlplane/reached", "hold")
	shared.Touch(t, "unused", ns+"/idle")
	touched := time.Now()
	bound := lease + lease/2 + slack
	var took []time.Duration
	for i := range victims {
		took = append(took, release(t, fmt.Sprintf("released-%d", i), 2*bound))
		if last := took[i]; last > bound {
			t.Errorf("release %d took %v, want at most %v", i, last, bound)
		}
		if a := l.ask(newHTTP(t), shared.Up.Gateways[i%2], fmt.Sprintf("meanwhile-%d", i)); a.Echo == nil {
			t.Errorf("a first request while another gateway is cut off: %v", a)
		}
	}
	if sb, found := shared.Sandbox(t, "unused"); !found || sb.Spec.End != nil {
		t.Errorf("released while a gateway was silent for %v: %+v", time.Since(touched), sb.Spec.End)
	}
	alone := time.Since(touched)
	disarm(t, away.Name, "controlplane/reached")
	c := newHTTP(t)
	shared.Eventually(t, 30*time.Second, "the gateway to serve again", func() (bool, string) {
		a := l.ask(c, away, "meanwhile-0")
		return a.Echo != nil, a.String()
	})
	after := release(t, "meanwhile-0", 2*bound)
	if after > slack {
		t.Errorf("a release after the gateway was reached again took %v, want at most %v", after, slack)
	}
	shared.Eventually(t, 30*time.Second, "the idle release", func() (bool, string) {
		sb, _ := shared.Sandbox(t, "unused")
		return sb.Spec.End != nil && sb.Spec.End.Reason == v1alpha1.EndIdleTimeout, "not released"
	})
	l.judge()
	for k, n := range l.status {
		if !strings.HasPrefix(k, away.Name+" ") && strings.HasSuffix(k, " 503") {
			t.Errorf("%d answers %s", n, k)
		}
	}
	t.Logf("%d releases while a gateway was not reached took %v (bound %v), one afterwards %v; a sandbox idle for %v was not released", victims, took, bound, after, alone.Round(time.Second))
	if alone < 10*time.Second {
		t.Error("that is too little: nothing idle was there to be released")
	}
}

// release ends a sandbox and returns how long it takes until every gateway knows.
func release(t *testing.T, id string, limit time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	if err := writes.EndSandbox(t.Context(), shared.Client, id, v1alpha1.EndReleased, "it is released"); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, limit, "the fence of "+id, func() (bool, string) {
		all := record.Claims(id)
		return len(all) > 0 && !all[len(all)-1].Over.IsZero(), "not fenced"
	})
	return time.Since(began).Round(time.Millisecond)
}

// Gateways need nothing from each other: one gateway goes on claiming, serving and ending
// sandboxes while the others are stopped, and no gateway is connected to another.
func TestGatewaysNeedNothingFromEachOther(t *testing.T) {
	const n = 5
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 2*n, stack.WithIdleTimeout(0))
	l := newLoad(t, ns+"/pool")
	alone := shared.Up.Gateways[2]
	known := make([]stack.Echo, n)
	for i := range known { // through the first gateway
		known[i] = shared.Touch(t, fmt.Sprintf("known-%d", i), l.pool)
	}
	connections := unconnected(t)
	shared.WaitIdle(t, ns, "pool", 2*n)
	for i := range 2 {
		pid := gatewayPID(t, i, 0)
		signal(t, pid, syscall.SIGSTOP)
		defer signal(t, pid, syscall.SIGCONT)
	}
	began := time.Now()
	c := newHTTP(t)
	for i := range n {
		if a := l.ask(c, alone, fmt.Sprintf("known-%d", i)); a.Echo == nil || a.Echo.PodUID != known[i].PodUID {
			t.Errorf("known-%d through the only gateway: %v, want pod %s", i, a, known[i].PodUID)
		}
		if a := l.ask(c, alone, fmt.Sprintf("new-%d", i)); a.Echo == nil {
			t.Errorf("new-%d through the only gateway: %v", i, a)
		}
		id := fmt.Sprintf("known-%d", i)
		if err := writes.EndSandbox(t.Context(), shared.Client, id, v1alpha1.EndReleased, "its gateway stands still"); err != nil {
			t.Fatal(err)
		}
		shared.Eventually(t, 5*time.Second, "the end to be known", func() (bool, string) {
			a := l.ask(c, alone, id)
			return a.Status == 502, a.String()
		})
	}
	took := time.Since(began)
	l.judge()
	t.Logf("%d known sandboxes served and ended and %d new ones claimed by one gateway in %v while the others stood still; %d TCP connections of gateways and Envoys, none to another's", n, n, took.Round(time.Millisecond), connections)
}

// unconnected fails the test if a gateway or its Envoy is connected to a port that
// another pair listens on. It returns how many connections it looked at.
func unconnected(t *testing.T) (seen int) {
	t.Helper()
	now := &stack.Stack{State: shared.State}
	if err := now.Reload(); err != nil {
		t.Fatal(err)
	}
	port := regexp.MustCompile(`:(\d+)`)
	owner := map[int]string{} // by port
	for _, g := range now.Up.Gateways {
		for _, url := range []string{g.URL, g.MetricsURL} {
			n, err := strconv.Atoi(port.FindStringSubmatch(url)[1])
			if err != nil {
				t.Fatal(err)
			}
			owner[n] = g.Name
		}
	}
	for _, g := range now.Up.Gateways {
		for what, pid := range g.Pids {
			for _, remote := range remotePorts(t, pid) {
				seen++
				if other := owner[remote]; other != "" && other != g.Name {
					t.Errorf("the %s of %s is connected to %s", what, g.Name, other)
				}
			}
		}
	}
	if seen < len(now.Up.Gateways) { // each gateway has at least its watches
		t.Errorf("only %d connections found", seen)
	}
	return seen
}

// remotePorts returns the ports to which a process is connected by TCP.
func remotePorts(t *testing.T, pid int) (ports []int) {
	t.Helper()
	sockets := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Fatalf("no open files of process %d: %v", pid, err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
			sockets[strings.Trim(to, "socket:[]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(text), "\n")[1:] {
			f := strings.Fields(line)
			if len(f) < 10 || !sockets[f[9]] {
				continue
			}
			_, hex, _ := strings.Cut(f[2], ":")
			if p, err := strconv.ParseInt(hex, 16, 32); err == nil && p != 0 {
				ports = append(ports, int(p))
			}
		}
	}
	return ports
}
