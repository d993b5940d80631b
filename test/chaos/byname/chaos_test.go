package byname

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// fault is what happens to an egress process.
type fault struct {
	what string
	do   func(context.Context, *process)
}

var faults = []fault{
	{"its watches are late", func(ctx context.Context, p *process) {
		p.late(500*time.Millisecond + rand.N(3*time.Second))
		wait(ctx, 4*time.Second)
		p.late(0)
	}},
	{"it is killed", func(ctx context.Context, p *process) {
		p.kill()
		wait(ctx, rand.N(time.Second))
		p.start()
		p.ready()
	}},
	{"it stands still for a moment", func(ctx context.Context, p *process) { standStill(ctx, p, rand.N(3*time.Second)) }},
	{"it stands still until its lease is lost", func(ctx context.Context, p *process) { standStill(ctx, p, 18*time.Second+rand.N(4*time.Second)) }},
}

func standStill(ctx context.Context, p *process, d time.Duration) {
	p.signal(syscall.SIGSTOP)
	wait(ctx, d)
	p.signal(syscall.SIGCONT)
	p.ready()
}

// chaos has addresses of one sandbox after the other, and faults of each kind in turn, until
// so many connections were made and each fault has happened at least once.
func chaos(t *testing.T, slots int, connections int64, limit time.Duration) {
	w := newWorld(t)
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	running, slotCtx := errgroup.WithContext(ctx)
	for i := range slots {
		s := &slot{w: w, addr: netip.AddrFrom4([4]byte{127, 0, 60, byte(i + 1)})}
		running.Go(func() error { return s.run(slotCtx) })
	}
	begun, happened := time.Now(), 0
	for ; slotCtx.Err() == nil && (happened < len(faults) || w.connections.Load() < connections); happened++ {
		f, p := faults[happened%len(faults)], w.processes[rand.IntN(len(w.processes))]
		f.do(ctx, p)
		wait(slotCtx, rand.N(2*time.Second))
	}
	stop()
	if err := running.Wait(); err != nil {
		t.Error(err)
	}
	ruled, plain, streamed := w.judge.answered()
	t.Logf("%s: %d sandboxes at %d addresses, %d connections, %d requests with a credential, %d without, %d sent by streams, %d faults",
		time.Since(begun).Round(time.Second), w.claims.Load(), slots, w.connections.Load(), ruled, plain, streamed, happened)
	if happened < len(faults) || w.connections.Load() < connections || w.claims.Load() < int64(4*slots) || ruled == 0 || plain == 0 || streamed == 0 {
		t.Error("too little happened to prove anything")
	}
	if t.Failed() {
		for _, p := range w.processes {
			t.Log(p.log())
		}
	}
}

// TestSecondsOfEgress is a little of TestEgressChaos: each fault once.
func TestSecondsOfEgress(t *testing.T) { chaos(t, 4, 200, 5*time.Minute) }

// No request leaves with another sandbox's credential, and no connection outlives its claim
// by more than a second, whatever happens to egress processes.
func TestEgressChaos(t *testing.T) {
	if os.Getenv("SANDLANE_BIN") == "" {
		t.Skip("make chaos runs it")
	}
	chaos(t, 16, 100_000, 40*time.Minute)
}
