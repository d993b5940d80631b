package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// seedVariable is the variable with the seed of a schedule, which decides what is done, in
// which order and for how long. The exact times depend on the machine.
const seedVariable = "SANDLANE_CHAOS_SEED"

// The clients of a mixed run.
const (
	mixedIdle   = 4 * time.Second // the shortest that counts
	mixedUsers  = 8               // each with one sandbox after the other
	mixedActive = 4               // sandboxes asked for once a second, and never left alone
	mixedOpen   = 3               // silent WebSockets, each the only use of its sandbox
	firstStock  = 6
	madeStock   = 3
)

// enough is how much a mixed run must have done at least.
type enough struct {
	answers, claims, idle, ended, killed, deleted, created, returns, paused, hibernated int

	faults, long int // of each kind; long ones
}

// All faults at once, in random order: gateways are killed, stopped and cut off, the
// controller and the API server are killed and restarted, while sandboxes are made, used,
// ended and left alone. mixture.judge has what must hold.
//
// TestSecondsOfChaos is the short form, for each change. Its sandboxes do not hibernate,
// because the claims that a killed gateway leaves then may wait a minute or two for a sweep.
func TestSecondsOfChaos(t *testing.T) {
	mixed(t, 30*time.Second, shortLanes, enough{answers: 500, claims: 15, killed: 1, created: 1, paused: 1, faults: 1})
}

// TestMinuteOfChaos and TestTenMinutesOfChaos are those of `make chaos`.
func TestMinuteOfChaos(t *testing.T) {
	mixed(t, time.Minute, lanes, enough{
		answers: 1500, claims: 40, idle: 8, ended: 4, killed: 1, deleted: 1, created: 4, returns: 3, paused: 5, hibernated: 2, faults: 1, long: 1,
	})
}

func TestTenMinutesOfChaos(t *testing.T) {
	mixed(t, 10*time.Minute, longLanes, enough{
		answers: 20000, claims: 400, idle: 150, ended: 80, killed: 30, deleted: 20, created: 60, returns: 40, paused: 60, hibernated: 25, faults: 6, long: 3,
	})
}

// mixture is one mixed run.
type mixture struct {
	t      *testing.T
	ctx    context.Context // of the whole run
	ns     string
	key    string // of the REST API
	load   *load
	faults *faults
	began  time.Time
	probe  string // the ID of a sandbox that does not end

	hibernates bool // every other sandbox that is paused does

	mu      sync.Mutex
	count   map[string]int // what was done, by name
	notes   []string
	created []string  // by the REST API, which said so
	opened  []session // of WebSockets
	paused  []rested
	lost    []string // what had no answer

	lostFiles []string // of sandboxes that hibernated
}

func mixed(t *testing.T, length time.Duration, lanes [][]string, least enough) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Logf("%s=%d repeats this schedule", seedVariable, seed)
	m := newMixture(t)
	m.hibernates = least.hibernated > 0
	using, enoughUsed := context.WithCancel(m.ctx)
	defer enoughUsed()
	users := m.use(using, seed)
	shared.Eventually(t, 2*time.Minute, "every user to be answered", func() (bool, string) {
		n := 0
		for _, u := range users.all {
			n += min(u.answered(), 1)
		}
		return n == len(users.all), fmt.Sprintf("%d of %d, %s", n, len(users.all), counts(m.load.statuses()))
	})

	harming, over := context.WithTimeout(m.ctx, 2*length)
	defer over()
	var running sync.WaitGroup
	running.Go(func() {
		defer over()
		m.untilEnough(harming, length, least)
	})
	for i, deck := range lanes {
		running.Go(func() {
			if err := m.faults.lane(harming, rand.New(rand.NewPCG(seed, uint64(i))), slices.Clone(deck)); err != nil {
				t.Errorf("%v into the run: %v", time.Since(m.began).Round(time.Millisecond), err)
			}
		})
	}
	running.Wait()
	took := time.Since(m.began)
	enoughUsed()
	users.done.Wait()
	m.served(users)
	m.load.cancel()
	m.load.done.Wait()
	users.later.Wait()
	m.allEnded()
	m.onlyStock()
	m.judge(took, lanes, least)
}

// untilEnough returns after the length of a run, or later once the users have done as much as
// the run must have to prove anything: a busy machine takes longer for it.
func (m *mixture) untilEnough(ctx context.Context, length time.Duration, least enough) {
	end := time.NewTimer(length)
	defer end.Stop()
	select {
	case <-ctx.Done():
		return
	case <-end.C:
	}
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for !m.didEnough(least) {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// didEnough reports whether the users' actions suffice.
func (m *mixture) didEnough(least enough) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count["ended"] >= least.ended && m.count["killed"] >= least.killed && m.count["deleted"] >= least.deleted &&
		m.count["created"] >= least.created && m.count["paused"] >= least.paused && m.count["hibernated"] >= least.hibernated
}

// newMixture makes the pools and a key.
func newMixture(t *testing.T) *mixture {
	ns := shared.Namespace(t)
	m := &mixture{t: t, ctx: t.Context(), ns: ns, load: newLoad(t, ns+"/first"), probe: ns + "-probe", count: map[string]int{}}
	m.faults = newFaults(m)
	var err error
	if m.key, err = shared.Key(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	shared.Pool(t, ns, "first", firstStock, stack.WithIdleTimeout(mixedIdle))
	shared.Pool(t, ns, "made", madeStock, stack.WithIdleTimeout(mixedIdle), withSandboxd)
	shared.Pool(t, ns, "resting", restingStock, stack.WithIdleTimeout(mixedIdle), withPauses)
	shared.Pool(t, ns, "kept", 1, stack.WithIdleTimeout(0))
	shared.Touch(t, m.probe, ns+"/kept")
	m.began = time.Now()
	return m
}

// withSandboxd adds sandboxd to the pods: the REST API makes sandboxes only of such pods.
func withSandboxd(p *v1alpha1.SandboxPool) {
	spec := &p.Spec.Template.Template.Spec
	spec.Containers = append(spec.Containers, corev1.Container{
		Name: "envd", Image: "local/base",
		Ports: []corev1.ContainerPort{{Name: "envd", ContainerPort: v1alpha1.SandboxdPort}},
	})
}

// did counts one action of the run, by name.
func (m *mixture) did(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count[what]++
}

// span formats a time span of the run.
func (m *mixture) span(from, to time.Time) string {
	return fmt.Sprintf("%5.1f s to %5.1f s:", from.Sub(m.began).Seconds(), to.Sub(m.began).Seconds())
}

// note keeps a line for a person who looks for the cause of a failed run.
func (m *mixture) note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

// noAnswer notes a claim that is lost.
func (m *mixture) noAnswer(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = append(m.lost, fmt.Sprintf("%v into the run: ", time.Since(m.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// serves waits until a gateway answers for the sandbox that does not end.
func (m *mixture) serves(ctx context.Context, g stack.Gateway) error {
	c := newHTTP(m.t)
	return until(ctx, g.Name+" to serve again", func() error {
		if a := m.load.ask(c, g, m.probe); a.Echo == nil {
			return fmt.Errorf("it answers %v", a)
		}
		return nil
	})
}

// statuses are the answers by gateway and status.
func (l *load) statuses() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	for k, n := range l.status {
		out[k] = n
	}
	return out
}

// refused returns how many requests a gateway, or its Envoy without it, did not route to a
// sandbox.
func (l *load) refused(g stack.Gateway) (n int) {
	for k, of := range l.statuses() {
		if status, ok := strings.CutPrefix(k, g.Name+" "); ok && status != "200" && status != "502" {
			n += of
		}
	}
	return n
}
