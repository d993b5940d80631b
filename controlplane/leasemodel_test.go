package controlplane

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/bubble"
)

// leaseModel breaks leases, calls, writes and controllers at random while one fence after
// the other is asked for. No fence may complete while a gateway holds its lease that has
// neither acknowledged the fence nor joined since it was first asked for.
type leaseModel struct {
	*simulation
	rand     *rand.Rand
	pods     bool // gateways have pods; else a controller is stopped once all is written down
	gateways []*modelGateway
	stop     func()
	backups  []backup
	rv       uint64 // of the fence that is asked for
	joined   []int  // how often each gateway had joined when it was first asked for
	fences   int
	broken   []string
	done     []string // the last steps
}

type modelGateway struct {
	*gateway
	away atomic.Bool // it does not reach the API server
	cut  bool
	hang bool
}

type backup struct {
	rv     int
	leases []*coordinationv1.Lease
}

// awayLeases are the leases as one gateway reaches them.
type awayLeases struct {
	*fakeAPI
	g *modelGateway
}

func (l awayLeases) err() error {
	if l.g.away.Load() {
		return errAway
	}
	return nil
}

func (l awayLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.fakeAPI.Get(ctx, name, o)
}

func (l awayLeases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.fakeAPI.Create(ctx, lease, o)
}

func (l awayLeases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.fakeAPI.Update(ctx, lease, o)
}

func (l awayLeases) Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*coordinationv1.Lease, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.fakeAPI.Patch(ctx, name, t, data, o, sub...)
}

func TestLeaseModel(t *testing.T) {
	seeds, steps := 3, 150
	if os.Getenv("SANDLANE_MODEL") == "full" {
		seeds, steps = 20, 600
	}
	for _, pods := range []bool{true, false} {
		fences, broken := 0, 0
		for seed := range seeds {
			m := runLeaseModel(t, uint64(seed), steps, pods)
			fences, broken = fences+m.fences, broken+len(m.broken)
			for _, b := range m.broken {
				t.Errorf("seed %d: %s", seed, b)
			}
		}
		t.Logf("pods %v: %d seeds of %d steps, %d fences completed, %d violations", pods, seeds, steps, fences, broken)
	}
}

func runLeaseModel(t *testing.T, seed uint64, steps int, pods bool) *leaseModel {
	var m *leaseModel
	bubble.Test(t, func(t *testing.T) {
		s := &simulation{t: t, api: newFakeAPI(), pods: &fakePods{}, listeners: map[string]*bufconn.Listener{}, cut: map[string]bool{}, gateways: ServerOptions{Log: slog.New(slog.DiscardHandler)}}
		m = &leaseModel{simulation: s, rand: rand.New(rand.NewPCG(seed, 41)), pods: pods}
		var list []*corev1.Pod
		for i := range 3 {
			name := fmt.Sprintf("g%d", i)
			g := &modelGateway{gateway: s.listen(name+"-"+name, name+"p")}
			g.o.Leases, g.o.Log = awayLeases{s.api, g}, slog.New(slog.DiscardHandler)
			if pods {
				g.o.PodUID = name
				list = append(list, controlPod(name, types.UID(name), "10.0.0.1"))
			}
			g.start(t)
			m.gateways = append(m.gateways, g)
		}
		s.pods.set(nil, list...)
		m.lead()
		m.next()
		for range steps {
			m.step()
			m.ask()
			if len(m.broken) > 20 {
				break
			}
		}
		m.calm()
		for range 200 {
			before := m.fences
			m.ask()
			if m.fences > before {
				break
			}
			after(10 * time.Second)
		}
		if m.fences == 0 {
			t.Error("no fence was completed")
		}
		m.stop()
		for i := len(s.closers) - 1; i >= 0; i-- {
			s.closers[i]()
		}
	})
	return m
}

// controlPod is the pod of a gateway that runs, with the port for controllers.
func controlPod(name string, uid types.UID, ip string) *corev1.Pod {
	return gatewayPod(func(p *corev1.Pod) {
		p.Name, p.UID, p.Status.PodIP = name, uid, ip
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "control", ContainerPort: 9443}}
	})
}

// lead starts a controller.
func (m *leaseModel) lead() {
	d, err := NewDirectory(DirectoryOptions{Leases: controllerLeases{m.api, m.simulation}, Pods: m.simulation.pods, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		m.t.Fatal(err)
	}
	c, err := NewClient(ClientOptions{Directory: d, Log: slog.New(slog.DiscardHandler)}.dialed(m.simulation))
	if err != nil {
		m.t.Fatal(err)
	}
	m.directory, m.client = d, c
	stop := d.watch(m.t)
	m.stop = func() { c.Close(); stop() }
}

func (o ClientOptions) dialed(s *simulation) ClientOptions {
	o.Dial = append(o.Dial, grpc.WithContextDialer(s.dial))
	return o
}

// next begins another fence.
func (m *leaseModel) next() {
	m.rv++
	m.joined = nil
	for _, g := range m.gateways {
		m.joined = append(m.joined, joins(g))
	}
}

func joins(g *modelGateway) (n int) {
	for _, e := range g.log.all() {
		if e == "join" {
			n++
		}
	}
	return n
}

// ask asks once for the fence, and looks at all gateways if it completes.
func (m *leaseModel) ask() {
	if m.client.Fence(m.t.Context(), addr1, m.rv) != nil {
		return
	}
	m.fences++
	for i, g := range m.gateways {
		if g.Held() && !g.fences.acknowledged(m.rv) && joins(g) == m.joined[i] {
			m.broken = append(m.broken, fmt.Sprintf("fence %d completed, and %s holds %s and has not acknowledged it; last: %s",
				m.rv, g.o.Name, g.Holder(), strings.Join(m.done[max(0, len(m.done)-8):], ", ")))
		}
	}
	m.next()
}

func (m *leaseModel) say(format string, args ...any) {
	m.done = append(m.done, fmt.Sprintf(format, args...))
}

// step breaks or mends something, and lets time pass.
func (m *leaseModel) step() {
	g := m.gateways[m.rand.IntN(len(m.gateways))]
	name := g.o.Name
	switch n := m.rand.IntN(22); n {
	case 0, 1, 2:
		g.away.Store(!g.away.Load())
		m.say("away %s %v", name, g.away.Load())
	case 3, 4, 5:
		g.cut = !g.cut
		m.cutOff(name, g.cut)
		m.say("cut %s %v", name, g.cut)
	case 6:
		g.hang = !g.hang
		g.fences.setHang(g.hang)
		m.say("hang %s %v", name, g.hang)
	case 7:
		m.setMute(!m.isMute())
		m.say("mute %v", m.isMute())
	case 8:
		var n atomic.Int32
		m.api.setAfter(func(verb, _ string) error {
			if lost := verb != "list" && verb != "watch" && n.Add(1)%3 == 0; lost {
				return errAway
			}
			return nil
		})
		m.say("answers are lost")
	case 9:
		m.api.setAfter(nil)
		m.say("answers arrive")
	case 10, 11:
		m.strip(name)
	case 12, 13:
		m.delete(name)
	case 14, 15:
		m.backups = append(m.backups, m.backup())
		m.say("backup")
	case 16, 17:
		m.restore(n == 17)
	case 18, 19, 20:
		m.failOver(g)
	}
	switch m.rand.IntN(12) {
	case 0:
		after(11 * time.Minute)
	case 1, 2:
		after(time.Duration(m.rand.IntN(300)) * time.Second)
	case 3, 4, 5:
		after(time.Duration(m.rand.IntN(20_000)) * time.Millisecond)
	default:
		after(time.Duration(m.rand.IntN(1000)) * time.Millisecond)
	}
}

func (m *leaseModel) strip(name string) {
	l := m.api.get(name)
	if l == nil {
		return
	}
	delete(l.Labels, v1alpha1.LabelGateway)
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	m.api.write(l)
	m.say("strip %s", name)
}

func (m *leaseModel) delete(name string) {
	if m.api.get(name) == nil {
		return
	}
	m.api.drop(name)
	m.say("delete %s", name)
}

func (m *leaseModel) backup() backup {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	b := backup{rv: m.api.rv}
	for _, l := range m.api.leases {
		b.leases = append(b.leases, l.DeepCopy())
	}
	return b
}

// restore brings a backup back, from which one lease may be missing. A raised revision ends
// all watches; without one they go on.
func (m *leaseModel) restore(raised bool) {
	if len(m.backups) == 0 {
		return
	}
	i := m.rand.IntN(len(m.backups))
	b := m.backups[i]
	m.backups = m.backups[:i+1] // what was saved later is not restored after it
	leases := slices.Clone(b.leases)
	for i := range leases {
		leases[i] = leases[i].DeepCopy()
	}
	if len(leases) > 0 && m.rand.IntN(2) == 0 {
		leases = leases[1:]
	}
	rv := b.rv
	if raised {
		rv = m.api.version() + 1_000_000
	}
	m.api.rewind(rv, leases...)
	if raised {
		m.api.endWatches()
	}
	m.say("restore of %d leases, raised %v", len(leases), raised)
	if m.rand.IntN(2) == 0 {
		m.failOver(nil)
	}
}

// failOver replaces the controller. The leases of g may vanish while none runs.
func (m *leaseModel) failOver(g *modelGateway) {
	m.setMute(false) // a leader's writes are taken
	if !m.pods {
		m.api.setAfter(nil)
		if err := m.directory.WriteDown(m.t.Context()); err != nil {
			m.say("not written down: %v", err)
			return
		}
	}
	m.stop()
	if m.pods && g != nil && m.rand.IntN(3) == 0 {
		m.delete(g.o.Name)
	}
	m.lead()
	for _, g := range m.gateways {
		m.cutOff(g.o.Name, g.cut)
	}
	m.say("fail-over")
}

// calm mends everything.
func (m *leaseModel) calm() {
	m.setMute(false)
	m.api.setAfter(nil)
	for _, g := range m.gateways {
		g.away.Store(false)
		g.fences.setHang(false)
		m.cutOff(g.o.Name, false)
	}
}

// endWatches closes all watches, as for a version that is compacted.
func (f *fakeAPI) endWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		w.Stop()
		delete(f.watchers, w)
	}
}
