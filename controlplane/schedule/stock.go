package schedule

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podRecord is what the scheduler keeps of a pod. Its states:
//
//	ready ──picked──▶ held ──claim over──▶ cooling ──TTL, still listed──▶ ready
//	  │                 └──given back, still listed──▶ ready
//	  └──Forget──▶ (gone)      held, cooling ──no longer listed──▶ (gone)
//
// held and cooling together are the reservations. A held pod belongs to one
// attempt, which is bounded by its own timeouts; a cooling one waits
// for the watch to say that it has left idle, at most the reservation TTL. The
// record is listed while the feed's last call for it was Offer; a pod that is still
// listed at the end of its reservation is ready again, so no stock is lost, and
// claiming it is safe, since every claim tests the pod's phase and UID.
type podRecord struct {
	name   string
	uid    types.UID
	node   string
	shape  *shape
	state  podState
	listed bool          // the feed's last call for it was Offer
	until  time.Time     // end of a cooling record's reservation
	seen   chan struct{} // closed when the feed has said that the pod left idle; nil if no goroutine waits for it
}

type podState int

// The states of a record; podRecord's comment draws them.
const (
	ready podState = iota
	held
	cooling
)

// stock is the pods of one pool that can be claimed or are reserved. The
// scheduler's mutex guards it.
type stock struct {
	ttl        time.Duration
	pickOffset float64 // in [0,1]: where in the queue this gateway picks
	pods       map[types.UID]*podRecord
	shapes     []*shape     // of pods; a pool has one, or two while its template changes
	queue      []*podRecord // ready, in order of arrival
	cools      []coolOff    // in order of expiry
	// cordoned are the nodes that are, by name; it is not changed, but replaced.
	cordoned map[string]bool
}

// coolOff is a planned end of a reservation. It is void if the record has since
// got another one.
type coolOff struct {
	rec   *podRecord
	until time.Time
}

func newStock(ttl time.Duration, pickOffset float64) *stock {
	return &stock{ttl: ttl, pickOffset: pickOffset, pods: make(map[types.UID]*podRecord)}
}

// offer notes that the feed shows the pod idle; true if it is new stock.
func (s *stock) offer(pod *corev1.Pod) bool {
	rec := s.pods[pod.UID]
	isNew := rec == nil
	if isNew {
		rec = &podRecord{name: pod.Name, uid: pod.UID, node: pod.Spec.NodeName, shape: s.join(s.shapeOf(pod))}
		s.pods[pod.UID] = rec
		s.enqueue(rec, len(s.queue))
	} else if now := s.shapeOf(pod); !rec.shape.equal(now) {
		s.reshape(rec, now)
	}
	rec.listed = true
	return isNew
}

// forget notes that the pod has left idle. dropped: its record is gone, from the queue
// if evicted, else from the reservations.
func (s *stock) forget(uid types.UID) (dropped, evicted bool) {
	rec := s.pods[uid]
	if rec == nil {
		return false, false
	}
	rec.listed = false
	switch rec.state {
	case held: // until its attempt gives it back
		return false, false
	case ready:
		s.dequeue(slices.Index(s.queue, rec))
		evicted = true
	}
	s.drop(rec)
	return true, evicted
}

// pick reserves a ready pod; nil if there is none. Each gateway picks at an
// offset of its own, so that several do not all try the same pod. From there on,
// the first pod is taken that has the images already; if none has, the first that
// can be given them; if none can, the one at the offset, whose claim then says why. Pods of
// cordoned nodes come after all others that fit.
// While a template is rolled out, pods that lack a container stand beside pods that
// have it.
func (s *stock) pick(images map[string]string) *podRecord {
	if len(s.queue) == 0 {
		return nil
	}
	at := min(int(s.pickOffset*float64(len(s.queue))), len(s.queue)-1)
	if best := s.bestFit(images); best > fitsNot {
		for s.queue[at].shape.fit != best {
			at = (at + 1) % len(s.queue)
		}
	}
	rec := s.queue[at]
	s.dequeue(at)
	rec.state = held
	return rec
}

func (s *stock) enqueue(rec *podRecord, at int) {
	rec.state = ready
	rec.shape.ready++
	s.queue = slices.Insert(s.queue, at, rec)
}

func (s *stock) dequeue(at int) {
	s.queue[at].shape.ready--
	s.queue = slices.Delete(s.queue, at, at+1)
}

// drop forgets a pod that is not in the queue.
func (s *stock) drop(rec *podRecord) {
	delete(s.pods, rec.uid)
	s.leave(rec.shape)
	if rec.seen != nil {
		close(rec.seen)
	}
}

// giveBack ends the reservation of a pod that was not touched. front puts it
// at the head of the queue, which a gateway with pick offset 0 picks next.
func (s *stock) giveBack(rec *podRecord, front bool) {
	switch {
	case !rec.listed:
		s.drop(rec)
	case front:
		s.enqueue(rec, 0)
	default:
		s.enqueue(rec, len(s.queue))
	}
}

// cool keeps a pod reserved until the feed says that it has left idle, or the
// TTL is over: it was claimed, by us or by another, or written to stopping.
func (s *stock) cool(rec *podRecord, now time.Time) {
	if !rec.listed {
		s.drop(rec)
		return
	}
	rec.state, rec.until = cooling, now.Add(s.ttl)
	s.cools = append(s.cools, coolOff{rec, rec.until})
}

// expire makes ready what is still listed at the end of its reservation, and
// returns how many that were and when to look again (zero: no need).
func (s *stock) expire(now time.Time) (expired int, next time.Time) {
	for len(s.cools) > 0 {
		c := s.cools[0]
		current := s.pods[c.rec.uid] == c.rec && c.rec.state == cooling && c.rec.until.Equal(c.until)
		if current && now.Before(c.until) {
			return expired, c.until
		}
		s.cools = s.cools[1:]
		if current {
			s.giveBack(c.rec, false)
			expired++
		}
	}
	s.cools = nil
	return expired, time.Time{}
}

// reserved counts held and cooling pods.
func (s *stock) reserved() int { return len(s.pods) - len(s.queue) }
