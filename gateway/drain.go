package gateway

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sandlane/sandlane/envoy"
)

// quitTimeout bounds the calls to Envoy before the drain and after it, and how long its
// end may take.
const quitTimeout = 5 * time.Second

// drain holds the state of the stop's first step, in which Envoy is drained. All steps:
//
// When the context ends (SIGTERM), or a controller asks for a drain:
//
//	serving ─▶ draining ─▶ settling ─▶ leaving ─▶ stopped
//
//	draining  not ready, health NOT_SERVING, but every request is answered, first
//	          requests too. Envoy closes each connection with its next answer and
//	          takes new ones for DrainDelay more; then it stops listening. It ends
//	          when nothing is open any more, when DrainGrace is over, when
//	          told to stop at once, or when Envoy is gone. Then what Envoy has open is
//	          noted as used, every request is refused from here on, and Envoy is told to
//	          quit, with what is still open: after the lease is deleted no gateway
//	          could say that it is in use. Another Envoy that is started
//	          meanwhile, as a kubelet does, gets no route.
//	settling  the REST API takes no more requests; activations are refused and
//	          those under way settle; then ExtProc answers what it holds and stops,
//	          and what failed creates have left is undone
//	leaving   the lease is marked as left, which says that no route is left and nothing
//	          open, so Envoy must be known to be gone, also just before the deletion;
//	          if it is not, the lease stays. Before it is deleted a controller is told
//	          the last uses, if Envoy was looked at just before requests were refused.
//	          Then the control-plane server stops
//
// What may go wrong:
//
//	Envoy is not there, or ends      nothing to wait for: settling. So it is when
//	                                 all of a machine is stopped, Envoy first
//	another Envoy is started         every request is answered with 503. One that is
//	                                 there before the lease is left keeps the lease
//	Envoy refuses a step             logged; the other steps follow, within the
//	                                 grace. New connections that could not be turned
//	                                 away may be reset when it stops listening
//	Envoy cannot be told to quit,    logged; the lease stays, since its streams are
//	or does not                      in use. It answers 503 until the next process
//	                                 finds it draining, and ends it
//	the lease is lost                requests are answered with 503, as always
//	this process is killed           the lease counts its time out; the next
//	                                 process ends the half-drained Envoy
//	the lease cannot be deleted      logged; it counts its time out
//	a part fails                     no draining, since ExtProc could not answer:
//	                                 the other steps, and the error is returned.
//	                                 A gateway with half its parts would answer
//	                                 from what it cannot keep current. Envoy stays
//	                                 with its streams, and so does the lease: the
//	                                 next process is asked about them
//
// On a cluster Envoy must outlive this process: it runs as a restartable init
// container, which is stopped after the others, or delays its own SIGTERM by a
// preStop hook. If both get the signal at once Envoy cuts what is open. Both
// containers run as one user, without which newcomers cannot be turned away.
type drain struct {
	admin        envoy.Admin
	delay, grace time.Duration
	forceStop    <-chan struct{}
	log          *slog.Logger
	// noteOpen notes the use of the sandboxes that have requests open at Envoy. If it is nil, that
	// use is not known once Envoy is gone.
	noteOpen func(context.Context) error
	// refuse takes this gateway's right to route for good: it returns nil once every
	// request, also of an Envoy that is started later, is refused. Never nil.
	refuse func(context.Context) error
	// openNoted: noteOpen succeeded just before requests were refused, and Envoy was
	// told to quit only then. Only the method envoy writes it.
	openNoted bool

	begun atomic.Bool // the gateway is to stop
}

func newDrain(o Options) *drain {
	return &drain{
		admin: envoy.Admin{Socket: o.path(EnvoyAdminSocket)},
		delay: o.DrainDelay, grace: o.DrainGrace, forceStop: o.ForceStop, log: o.Log,
		refuse: func(context.Context) error { return nil },
	}
}

// envoy drains Envoy, has every request refused, ends Envoy, and reports whether Envoy is
// known to be gone. Once a part of the gateway has failed, which ends a drain under way, it
// only has requests refused and looks whether Envoy runs.
func (d *drain) envoy(failed context.Context) (gone bool) {
	noted := failed.Err() == nil && d.sendAway(failed)
	ctx := context.WithoutCancel(failed)
	refusing, cancel := context.WithTimeout(ctx, quitTimeout)
	defer cancel()
	// Before Envoy is looked at or told to quit: one that is started later must get no route.
	err := d.refuse(refusing)
	if err != nil {
		d.log.Warn("requests are not refused yet", "error", err)
	}
	if failed.Err() != nil {
		return d.gone(ctx)
	}
	d.openNoted = noted && err == nil
	return d.quit(ctx)
}

// sendAway drains Envoy until the grace ends or a part of the gateway fails, and reports
// whether what is open then is noted as used.
func (d *drain) sendAway(failed context.Context) (noted bool) {
	ctx, cancel := context.WithTimeout(failed, d.grace)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-d.forceStop:
			cancel()
		case <-done:
		}
	}()
	began := time.Now()
	left, err := d.admin.Drain(ctx, d.delay)
	if errors.Is(err, envoy.ErrGone) {
		return false
	}
	if err != nil && ctx.Err() == nil {
		d.log.Warn("Envoy was not drained as it should be", "error", err)
	}
	if failed.Err() != nil {
		return false
	}
	d.log.Info("Envoy is drained and ends", "after", time.Since(began).Round(time.Millisecond), "requests cut", left.Requests)
	if d.noteOpen == nil {
		return false
	}
	looking, stop := context.WithTimeout(context.WithoutCancel(ctx), quitTimeout)
	defer stop()
	return d.noteOpen(looking) == nil
}

// gone reports whether Envoy is known not to run.
func (d *drain) gone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, quitTimeout)
	defer cancel()
	gone, err := d.admin.Gone(ctx)
	if err != nil {
		d.log.Warn("whether Envoy runs is unknown", "error", err)
	}
	return gone
}

// endLeftover ends an Envoy that a former process drained and could not end: it does not
// listen any more and cannot begin again.
func (d *drain) endLeftover(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, quitTimeout)
	defer cancel()
	if draining, err := d.admin.Draining(asking); err == nil && draining && !d.begun.Load() {
		d.log.Warn("ending an Envoy that a former gateway left half drained")
		d.quit(ctx)
	}
	return nil // not this gateway's failure
}

// quit ends Envoy and reports whether it is known to be gone.
func (d *drain) quit(ctx context.Context) (gone bool) {
	ctx, cancel := context.WithTimeout(ctx, quitTimeout)
	defer cancel()
	if err := d.admin.Quit(ctx); err != nil {
		d.log.Warn("Envoy did not quit", "error", err)
		return false
	}
	return true
}
