package chaos

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/stack"
)

// Times between two requests of a user through one gateway: for its sandbox, for its former
// sandbox, and for a sandbox that has no other use.
const (
	askEvery    = 150 * time.Millisecond
	formerEvery = 500 * time.Millisecond
	activeEvery = time.Second
)

// claimLimit is how long a user waits for the answers of a sandbox that it made:
// longer than a gateway lets a first request wait.
const claimLimit = 2 * time.Minute

// users are all clients of the run.
type users struct {
	all   []*user
	done  sync.WaitGroup // of their goroutines
	later sync.WaitGroup // requests for sandboxes that were left alone
}

// user has one sandbox after the other. It sends requests for its sandbox through every
// gateway, and also for its former one.
type user struct {
	m      *mixture
	later  *sync.WaitGroup
	rng    *rand.Rand // only the goroutine of life uses it
	prefix string

	mu       sync.Mutex
	id, last string            // the sandbox and the former one; empty: no requests for it
	answers  map[string]int    // of id, by gateway
	refused  map[string]string // what a gateway said last that was no answer of id
	left     []string          // left alone, not seen ended
}

// use starts all clients. They make no more sandboxes when ctx ends; the load goes on until
// it is stopped.
func (m *mixture) use(ctx context.Context, seed uint64) *users {
	all := &users{}
	add := func(kind string, i int, every time.Duration, life func(*user, context.Context)) {
		u := &user{
			m: m, later: &all.later, rng: rand.New(rand.NewPCG(seed, uint64(100+len(all.all)))),
			prefix: fmt.Sprintf("%s-%s-%d", m.ns, kind, i), answers: map[string]int{}, refused: map[string]string{},
		}
		all.all = append(all.all, u)
		for _, g := range shared.Up.Gateways {
			m.load.hammer(g, every, u.current, func(id string, a stack.Answer) { u.seen(g, id, a) })
			m.load.hammer(g, formerEvery, u.former, nil)
		}
		all.done.Go(func() { life(u, ctx) })
	}
	for i := range mixedUsers {
		add("user", i, askEvery, (*user).life)
	}
	for i := range mixedActive {
		add("active", i, activeEvery, (*user).keep)
	}
	for i := range mixedResting {
		add("resting", i, askEvery, func(u *user, ctx context.Context) { u.pauses(ctx, i) })
	}
	for i := range mixedOpen {
		rng := rand.New(rand.NewPCG(seed, uint64(1000+i)))
		m.load.done.Go(func() { m.webSockets(rng, fmt.Sprintf("%s-socket-%d", m.ns, i)) })
	}
	return all
}

func (u *user) current() string { u.mu.Lock(); defer u.mu.Unlock(); return u.id }

// former returns the last sandbox of the user that has ended.
func (u *user) former() string { u.mu.Lock(); defer u.mu.Unlock(); return u.last }

func (u *user) seen(g stack.Gateway, id string, a stack.Answer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if id != u.id {
		return
	}
	if a.Echo != nil {
		u.answers[g.Name]++
	} else {
		u.refused[g.Name] = fmt.Sprintf("%.80s at %s", a, time.Now().Format(time.TimeOnly))
	}
}

// unserved says what the gateways that have not answered for the present sandbox said last.
func (u *user) unserved() (text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, g := range shared.Up.Gateways {
		if u.answers[g.Name] == 0 {
			text += fmt.Sprintf(" (%s: %s)", g.Name, cmp.Or(u.refused[g.Name], "no answer at all"))
		}
	}
	return text
}

func (u *user) answered() (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, of := range u.answers {
		n += of
	}
	return n
}

// servedBy returns how many gateways have answered for the present sandbox.
func (u *user) servedBy() int { u.mu.Lock(); defer u.mu.Unlock(); return len(u.answers) }

// asks makes the sandbox the user's present one, to which its requests go; empty is none.
func (u *user) asks(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.id, u.answers, u.refused = id, map[string]int{}, map[string]string{}
}

// life makes, uses and ends sandboxes until ctx ends. Afterwards there are still requests for
// the last one.
func (u *user) life(ctx context.Context) {
	for n := 0; ; n++ {
		made := u.rng.IntN(3) == 0
		id := fmt.Sprintf("%s-%d", u.prefix, n)
		use, fate := between(u.rng, 500*time.Millisecond, 5*time.Second), u.rng.IntN(10)
		u.endedOnes()
		if made {
			if id, _ = u.create("made"); id == "" {
				return // the run's time is over
			}
		}
		u.asks(id)
		if !u.used(id, 2*len(shared.Up.Gateways)) {
			continue
		}
		if wait(ctx, use) != nil {
			return
		}
		u.asks("")
		u.part(id, made, fate)
	}
}

// keep sends requests for one sandbox as long as it lives.
func (u *user) keep(ctx context.Context) {
	for n := 0; ; n++ {
		id := fmt.Sprintf("%s-%d", u.prefix, n)
		u.asks(id)
		for !ended(id) {
			if wait(ctx, 200*time.Millisecond) != nil {
				return
			}
		}
		u.m.did("asked once a second and released")
	}
}

// used waits until the sandbox has answered n times. It returns false if the sandbox has
// ended or the answers do not come.
func (u *user) used(id string, answers int) bool {
	for began := time.Now(); u.answered() < answers; {
		if ended(id) {
			u.m.did("ended before it was used")
			return false
		}
		if time.Since(began) > claimLimit {
			u.m.noAnswer("%s, asked for through every gateway: %d answers in %v", id, u.answered(), claimLimit)
			return false
		}
		if wait(u.m.ctx, 20*time.Millisecond) != nil {
			return false
		}
	}
	return true
}

// ended reports whether the record shows the end of a sandbox's last claim.
func ended(id string) bool {
	all := record.Claims(id)
	return len(all) > 0 && !all[len(all)-1].Ended.IsZero()
}

// endedOnes makes the last sandbox that was left alone and has ended the former one, which
// gets requests again. It must have ended before, or the requests would keep it in use.
func (u *user) endedOnes() {
	u.mu.Lock()
	left := u.left
	u.left = nil
	u.mu.Unlock()
	for _, id := range left {
		over := ended(id)
		u.mu.Lock()
		if over {
			u.last = id
		} else {
			u.left = append(u.left, id)
		}
		u.mu.Unlock()
	}
}

// part ends a sandbox, or leaves it alone.
func (u *user) part(id string, made bool, fate int) {
	m := u.m
	var err error
	switch {
	case fate < 4:
		m.did("left alone")
		u.leave(id)
		return
	case fate < 6:
		m.did("left alone and asked for again")
		u.leave(id)
		// About the time of its release: before, during and after.
		after, g := mixedIdle+between(u.rng, -500*time.Millisecond, 2*time.Second), u.rng.IntN(len(shared.Up.Gateways))
		u.later.Go(func() { u.comeBack(id, after, g) })
		return
	case made:
		err = u.kill(id)
	case fate < 9:
		m.did("ended")
		err = until(m.ctx, "the end of "+id, func() error {
			return writes.EndSandbox(m.ctx, shared.Client, id, v1alpha1.EndReleased, "the user has gone")
		})
	default:
		m.did("deleted")
		err = until(m.ctx, "the deletion of "+id, func() error {
			return client.IgnoreNotFound(shared.Client.Delete(m.ctx, &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id}}))
		})
	}
	if err != nil {
		m.t.Error(err)
	}
	// One that was deleted may be made again by the next request.
	if made || fate < 9 {
		u.mu.Lock()
		u.last = id
		u.mu.Unlock()
	}
}

func (u *user) leave(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.left = append(u.left, id)
}

// comeBack sends a few more requests for a sandbox that was left alone. Each answer keeps it
// for an idle timeout, unless it has ended; mixture.judge checks that.
func (u *user) comeBack(id string, after time.Duration, gateway int) {
	if wait(u.m.ctx, after) != nil {
		return
	}
	for i := range 3 {
		g := shared.Up.Gateways[(gateway+i)%len(shared.Up.Gateways)]
		switch a := u.m.load.ask(newHTTP(u.m.t), g, id); {
		case a.Echo != nil:
			u.m.did("asked for again and kept")
		case a.Status == 502:
			u.m.did("asked for again and over")
		}
	}
}
