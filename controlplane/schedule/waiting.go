package schedule

import "container/list"

// waiting is the bounded queue of requests that have no pod, first come, first
// served. One tenant gets at most three quarters of it, so that there is always
// room for another; requests without a tenant share no limit but the queue's.
// The scheduler's mutex guards it.
type waiting struct {
	size   int
	order  list.List // of *entry
	shares map[string]int
}

func newWaiting(size int) *waiting {
	return &waiting{size: size, shares: make(map[string]int)}
}

func (w *waiting) len() int { return w.order.Len() }

// admits reports whether a new request of the tenant finds room, when stock
// pods are ready for those who wait already.
func (w *waiting) admits(tenant string, stock int) bool {
	if w.order.Len()-stock >= w.size {
		return false
	}
	return tenant == "" || w.shares[tenant]-stock < w.size-w.size/4
}

// push puts a new request at the end, or one that lost its pod at the front.
func (w *waiting) push(e *entry, front bool) {
	if front {
		e.place = w.order.PushFront(e)
	} else {
		e.place = w.order.PushBack(e)
	}
	w.shares[e.Tenant]++
}

func (w *waiting) first() *entry {
	if e := w.order.Front(); e != nil {
		return e.Value.(*entry)
	}
	return nil
}

func (w *waiting) remove(e *entry) {
	w.order.Remove(e.place)
	e.place = nil
	if w.shares[e.Tenant]--; w.shares[e.Tenant] == 0 {
		delete(w.shares, e.Tenant)
	}
}
