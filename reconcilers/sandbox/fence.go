package sandbox

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	jitter "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/reconcilers/internal/resync"
)

const (
	// quickFence is how long an end waits for its fence before it writes status Ending.
	quickFence = 200 * time.Millisecond
	// maxFenceWait bounds the time between two attempts to reach all gateways.
	maxFenceWait = 15 * time.Second
	// maxFenceAttempts bounds the attempts under way at a time. An API server bears fewer ends
	// a second than that.
	maxFenceAttempts = 4096
	// noRoomWait is about how long a fence waits when maxFenceAttempts are under way.
	noRoomWait = time.Second
)

// attempt asks all gateways once to acknowledge a fence; byName: and all egress processes.
func (r *Reconciler) attempt(ctx context.Context, addr netip.Addr, rv uint64, byName bool) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.FenceTimeout)
	defer cancel()
	var egress error
	var asking sync.WaitGroup
	if byName && r.Egress != nil {
		asking.Go(func() { egress = r.Egress.Fence(ctx, addr, rv) })
	}
	err := r.Fencer.Fence(ctx, addr, rv)
	asking.Wait()
	err = errors.Join(err, egress)
	r.Metrics.fenced(time.Since(start), err)
	return err
}

// isByName reports whether a pod's address is to be fenced at egress too. A pod that is not
// known may be one.
func isByName(pod *corev1.Pod) bool {
	return pod == nil || pod.Labels[v1alpha1.LabelEgress] != ""
}

// fences are the fences of ends, and of claims that a pause gave up. Each attempt is a
// goroutine of its own, so that it keeps no worker; the Fencer batches attempts that are made
// at the same time. After an attempt the sandbox is queued again. It is safe for concurrent
// use.
//
//	none ─begin─▶ asking ─all have acknowledged─▶ done ─forget─▶ none
//	                │  ▲
//	     unanswered ▼  │ progress, after 1, 2, 4 … 15 s
//	               waiting
type fences struct {
	clock   clock.PassiveClock
	attempt func(ctx context.Context, addr netip.Addr, rv uint64, byName bool) error
	asks    sync.WaitGroup // attempts

	mu      sync.Mutex
	ctx     context.Context // of the attempts
	requeue func(id string)
	open    map[fenceKey]*openFence
	claims  map[string]map[string]struct{} // the former claims with an open fence, by the sandbox's ID
	asking  int                            // attempts under way
}

// fenceKey is what a fence is for: the end of a sandbox, or a claim of it that a pause gave
// up.
type fenceKey struct{ id, claim string }

// openFence is a fence that was begun and whose Sandbox is not Ended yet, as far as the
// cache shows. fences.mu guards all of it.
type openFence struct {
	of types.UID
	// addr and rv are the same in all attempts: a later resourceVersion would be right too,
	// but the gateways would take it for a new fence.
	addr   netip.Addr
	rv     uint64
	byName bool // egress processes are asked too
	record record
	onDone func() // nil, or called once all gateways have acknowledged it
	begun  time.Time
	asking bool
	pause  time.Duration // the last one between two attempts
	next   time.Time
	done   bool // all gateways have acknowledged it
}

func newFences(c clock.PassiveClock, attempt func(context.Context, netip.Addr, uint64, bool) error) *fences {
	return &fences{clock: c, attempt: attempt, ctx: context.Background(), requeue: func(string) {}, open: map[fenceKey]*openFence{}, claims: map[string]map[string]struct{}{}}
}

// run sets the context with which attempts end, and the queue into which an attempt puts its
// sandbox when it is over. It is called before the workers begin.
func (f *fences) run(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ctx = ctx
	f.requeue = func(id string) { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: id}}) }
	return nil
}

// begin begins a fence with its first attempt. The caller sets of, addr and rv of o, and may
// set record and onDone.
func (f *fences) begin(key fenceKey, o openFence) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if was := f.open[key]; was != nil && was.of == o.of {
		return
	}
	o.begun = f.clock.Now()
	f.open[key] = &o
	if key.claim != "" {
		if f.claims[key.id] == nil {
			f.claims[key.id] = map[string]struct{}{}
		}
		f.claims[key.id][key.claim] = struct{}{}
	}
	f.ask(key, &o)
}

// fenceView is how far a fence has come.
type fenceView struct {
	record record
	done   bool
	age    time.Duration // since it was begun
	wait   time.Duration // until progress is to be called again, unless the sandbox is queued before
}

// progress returns how far the fence has come, and begins the next attempt if it is due.
// It returns false if this process has begun no such fence: then the end is carried out
// from its first step.
func (f *fences) progress(key fenceKey, uid types.UID) (fenceView, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.open[key]
	if o == nil || o.of != uid {
		return fenceView{}, false
	}
	now := f.clock.Now()
	if !o.done && !o.asking && !o.next.After(now) {
		f.ask(key, o)
	}
	v := fenceView{record: o.record, done: o.done, age: now.Sub(o.begun), wait: maxFenceWait}
	if !o.asking {
		v.wait = o.next.Sub(now)
	}
	return v, true
}

// ask begins an attempt, if there is room. mu is held.
func (f *fences) ask(key fenceKey, o *openFence) {
	if f.asking >= maxFenceAttempts {
		o.next = f.clock.Now().Add(jitter.Jitter(noRoomWait, 0.5))
		return
	}
	f.asking++
	o.asking = true
	ctx := f.ctx
	f.asks.Go(func() {
		err := f.attempt(ctx, o.addr, o.rv, o.byName)
		f.mu.Lock()
		requeue := f.requeue
		f.asking--
		o.asking = false
		onDone := o.onDone
		if err == nil {
			o.done = true
		} else {
			onDone = nil
			o.pause = backoff.Next(o.pause, time.Second, maxFenceWait)
			o.next = f.clock.Now().Add(o.pause)
			log.FromContext(ctx).V(1).Info("the fence is not acknowledged yet", "again", o.pause, "cause", err.Error())
		}
		f.mu.Unlock()
		if onDone != nil {
			onDone()
		}
		requeue(key.id)
	})
}

func (f *fences) forget(key fenceKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(key)
}

// retryFormer begins the due attempts of the fences of the sandbox's former claims. wait is
// how long until it is to be called again; 0 if no such fence is open.
func (f *fences) retryFormer(id string, uid types.UID) (wait time.Duration) {
	f.mu.Lock()
	claims := slices.Collect(maps.Keys(f.claims[id]))
	f.mu.Unlock()
	for _, claim := range claims {
		if v, open := f.progress(fenceKey{id, claim}, uid); open {
			wait = resync.Sooner(wait, max(v.wait, retrySoon))
		}
	}
	return wait
}

// forgetAll forgets all fences of a sandbox that is gone. Attempts that are under way still
// call onDone, and the sweep fences the claims that are left.
func (f *fences) forgetAll(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for claim := range f.claims[id] {
		f.drop(fenceKey{id, claim})
	}
	f.drop(fenceKey{id: id})
}

// drop forgets one fence. mu is held.
func (f *fences) drop(key fenceKey) {
	delete(f.open, key)
	if delete(f.claims[key.id], key.claim); len(f.claims[key.id]) == 0 {
		delete(f.claims, key.id)
	}
}
