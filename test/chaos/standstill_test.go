package chaos

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/stack"
)

const (
	standRounds = 4
	standAtOnce = 10 // requests of a round
	// standLeast is how many requests must have stood still in an Envoy, each from before the
	// end of its sandbox until another sandbox served at the address.
	standLeast = 24
	standFor   = 10 * time.Second
	// standUsed is how long the addresses may take to be used again.
	standUsed = 30 * time.Second
)

// Envoys stand still for ten seconds, longer than an address cools down, with answers of ExtProc
// that they have not read, and while they connect to pods that drop their SYNs. Meanwhile
// the sandboxes are ended and their addresses serve others. No request reaches these.
//
// The local node resets connections to a pod when it takes the pod's network away, those
// that are being made too; that the kernel's patience is short where no node does so is
// tested in package envoy.
func TestEnvoysThatStandStill(t *testing.T) {
	own, r := stackOf(t, 3, "--address-cooldown", "0s") // what is shipped: shorter ones are not safe here
	share(t, own, r)
	for i, kind := range []struct {
		name  string
		stall func(*stalls, []string)
	}{
		{"answer unread", (*stalls).askParked},
		{"connecting", (*stalls).askSilent},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := newStalls(t, own.Up.Gateways[i], own.Up.Gateways[2])
			for n := range standRounds {
				s.round(n, kind.stall)
			}
			s.load.judge()
			t.Logf("%d requests stood still until their addresses were used again", s.count)
			if s.count < standLeast {
				t.Errorf("that is too little: want %d", standLeast)
			}
		})
	}
}

// stalls has the requests of one kind, which stand still in one gateway's Envoy.
type stalls struct {
	t    *testing.T
	load *load
	// stalled is the gateway whose Envoy is stopped, other one that serves meanwhile.
	stalled, other stack.Gateway
	node, envoy    int // processes
	asked          sync.WaitGroup
	count          int
}

func newStalls(t *testing.T, stalled, other stack.Gateway) *stalls {
	ns := shared.Namespace(t)
	// Its pods are made when requests wait for them.
	shared.Pool(t, ns, "pool", 0, stack.WithIdleTimeout(0))
	s := &stalls{t: t, load: newLoad(t, ns+"/pool"), stalled: stalled, other: other}
	var err, err2 error
	s.node, err = nodePID(t.Context(), shared, 0)
	s.envoy, err2 = envoyPID(t.Context(), stalled.Name, 0)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = signalOurs(s.envoy, "", syscall.SIGCONT) })
	return s
}

func (s *stalls) signal(what syscall.Signal) {
	s.t.Helper()
	if err := signalOurs(s.envoy, "", what); err != nil {
		s.t.Fatal(err)
	}
}

// round has Envoy stand still with some requests until other sandboxes have their addresses.
func (s *stalls) round(n int, stall func(*stalls, []string)) {
	s.t.Helper()
	var ids []string
	for i := range standAtOnce {
		ids = append(ids, fmt.Sprintf("%s-%d-%d", s.stalled.Name, n, i))
	}
	stall(s, ids)
	began := time.Now()
	s.end(ids)
	var next, unused []string
	deadline := began.Add(standUsed)
	for batch := 0; ; batch++ {
		unused = slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
			claims := record.Claims(id)
			return len(claims) > 0 && record.UsedAfter(claims[len(claims)-1])
		})
		if len(unused) == 0 || time.Now().After(deadline) {
			break
		}
		var more []string
		for i := range unused {
			more = append(more, fmt.Sprintf("%s-next-%d-%d", ids[0], batch, i))
		}
		s.ask(s.other, more).Wait()
		for _, id := range more {
			if _, found := shared.Sandbox(s.t, id); found {
				next = append(next, id)
			}
		}
	}
	if err := wait(s.t.Context(), time.Until(began.Add(standFor))); err != nil {
		s.t.Fatal(err)
	}
	s.signal(syscall.SIGCONT)
	s.asked.Wait()
	s.count -= len(unused)
	s.end(next)
}

// ask sends a request for each sandbox.
func (s *stalls) ask(g stack.Gateway, ids []string) *sync.WaitGroup {
	asked := &sync.WaitGroup{}
	for _, id := range ids {
		c := newHTTP(s.t)
		asked.Go(func() { s.load.ask(c, g, id) })
	}
	return asked
}

// stand sends the requests that shall stand still.
func (s *stalls) stand(ids []string) {
	asked := s.ask(s.stalled, ids)
	s.asked.Go(asked.Wait)
}

func (s *stalls) end(ids []string) {
	s.t.Helper()
	for _, id := range ids {
		if err := writes.EndSandbox(s.t.Context(), shared.Client, id, v1alpha1.EndReleased, "test"); err != nil {
			s.t.Fatal(err)
		}
	}
}

// askParked stops Envoy while the requests wait in ExtProc for a pod, and returns when
// ExtProc has answered them.
func (s *stalls) askParked(ids []string) {
	s.t.Helper()
	s.stand(ids)
	shared.Eventually(s.t, 20*time.Second, "the requests to wait", func() (bool, string) {
		n, _, err := s.stalled.Metric(s.t.Context(), "sandlane_extproc_in_flight")
		return int(n) >= len(ids), fmt.Sprint(n, err)
	})
	s.signal(syscall.SIGSTOP)
	for _, id := range ids {
		if sb, found := shared.Sandbox(s.t, id); !found || sb.Spec.Binding == nil {
			s.count++
		}
	}
	shared.Eventually(s.t, 40*time.Second, "ExtProc's answers", func() (bool, string) {
		n, _, err := s.stalled.Metric(s.t.Context(), "sandlane_extproc_in_flight")
		return err == nil && n == 0, fmt.Sprint(n, err)
	})
}

// askSilent stops Envoy while it connects to pods that drop SYNs.
func (s *stalls) askSilent(ids []string) {
	s.t.Helper()
	s.ask(s.other, ids).Wait() // these get the pods
	var addresses []string
	for i, id := range ids {
		sb, found := shared.Sandbox(s.t, id)
		if !found || sb.Spec.Binding == nil {
			s.t.Fatalf("%s has no pod", id)
		}
		for _, pod := range shared.PodsOf(s.t, sb.Spec.Namespace) {
			if string(pod.UID) != sb.Spec.Binding.PodUID {
				continue
			}
			if err := silence(stack.PodPID(s.node, string(pod.UID)), pod.Status.PodIP); err != nil {
				s.t.Fatalf("have the pod of %s drop SYNs: %v", id, err)
			}
			addresses = append(addresses, pod.Status.PodIP)
		}
		s.load.mu.Lock()
		s.load.known[s.stalled.Name+" "+id] = i%2 == 0 // half are hits of the fast path
		s.load.mu.Unlock()
	}
	s.stand(ids)
	shared.Eventually(s.t, 10*time.Second, "Envoy to connect", func() (bool, string) {
		n := connecting(s.t, addresses)
		return n == len(ids), fmt.Sprint(n)
	})
	s.signal(syscall.SIGSTOP)
	s.count += connecting(s.t, addresses)
}

// silence lets a pod send nothing to this machine: it takes SYNs and cannot answer.
func silence(pid int, pod string) error {
	towards, err := net.Dial("udp", net.JoinHostPort(pod, "8000"))
	if err != nil {
		return err
	}
	defer func() { _ = towards.Close() }()
	us := towards.LocalAddr().(*net.UDPAddr).IP
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	return h.RouteReplace(&netlink.Route{Dst: netlink.NewIPNet(us), Type: unix.RTN_BLACKHOLE})
}

// connecting is how many of the pods this machine sends SYNs to.
func connecting(t *testing.T, pods []string) (n int) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		ip := net.ParseIP(pod).To4()
		if strings.Contains(string(table), fmt.Sprintf(" %02X%02X%02X%02X:%04X 02 ", ip[3], ip[2], ip[1], ip[0], 8000)) {
			n++
		}
	}
	return n
}
