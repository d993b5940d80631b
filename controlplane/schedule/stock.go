package schedule

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podRecord is what the scheduler keeps of a pod.
type podRecord struct {
	name       string
	uid        types.UID
	containers []container // shared between pods of one shape
	state      podState
	listed     bool      // the feed's last word was Offer
	until      time.Time // end of a cooling record's reservation
}

type podState int

// The states of a record; the package comment draws them.
const (
	ready podState = iota
	held
	cooling
)

// stock is the pods of one pool that can be claimed or are reserved. The
// scheduler's mutex guards it.
type stock struct {
	ttl   time.Duration
	start float64 // in [0,1): where in the queue this gateway picks
	pods  map[types.UID]*podRecord
	queue []*podRecord // ready, in order of arrival
	cools []coolOff    // in order of expiry
	shape []container  // the last shape seen, to be shared
}

// coolOff is a planned end of a reservation. It is void if the record has since
// got another one.
type coolOff struct {
	rec   *podRecord
	until time.Time
}

func newStock(ttl time.Duration, start float64) *stock {
	return &stock{ttl: ttl, start: start, pods: make(map[types.UID]*podRecord)}
}

// offer notes that the feed shows the pod idle; true if it is new stock.
func (s *stock) offer(pod *corev1.Pod) bool {
	containers := containersOf(pod)
	if slices.Equal(containers, s.shape) {
		containers = s.shape
	} else {
		s.shape = containers
	}
	rec := s.pods[pod.UID]
	fresh := rec == nil
	if fresh {
		rec = &podRecord{name: pod.Name, uid: pod.UID}
		s.pods[pod.UID] = rec
		s.queue = append(s.queue, rec)
	}
	rec.listed = true
	if !slices.Equal(rec.containers, containers) {
		rec.containers = containers
	}
	return fresh
}

// forget notes that the pod has left idle; true if it was in the queue.
func (s *stock) forget(uid types.UID) (evicted bool) {
	rec := s.pods[uid]
	if rec == nil {
		return false
	}
	rec.listed = false
	switch rec.state {
	case held: // until its claim is over
		return false
	case ready:
		i := slices.Index(s.queue, rec)
		s.queue = slices.Delete(s.queue, i, i+1)
		evicted = true
	}
	delete(s.pods, uid)
	return evicted
}

// pick reserves a ready pod; nil if there is none. Each gateway picks at a
// place of its own, so that several do not all try the same pod.
func (s *stock) pick() *podRecord {
	if len(s.queue) == 0 {
		return nil
	}
	i := int(s.start * float64(len(s.queue)))
	rec := s.queue[i]
	s.queue = slices.Delete(s.queue, i, i+1)
	rec.state = held
	return rec
}

// giveBack ends the reservation of a pod that was not touched. front puts it
// where it is picked next (by the gateway that picks at the head).
func (s *stock) giveBack(rec *podRecord, front bool) {
	if !rec.listed {
		delete(s.pods, rec.uid)
		return
	}
	rec.state = ready
	if front {
		s.queue = slices.Insert(s.queue, 0, rec)
	} else {
		s.queue = append(s.queue, rec)
	}
}

// cool keeps a pod reserved until the feed says that it has left idle, or the
// TTL is over: it was claimed, by us or by another, or written to stopping.
func (s *stock) cool(rec *podRecord, now time.Time) {
	if !rec.listed {
		delete(s.pods, rec.uid)
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
