package schedule

import "container/list"

// waiting is the bounded queue of requests that have no pod. Tenants take
// turns, so that one that asks a thousand times delays another's one request by
// one pod and not by a thousand; the requests of one tenant, and those without
// a tenant, are served in order of arrival. A tenant may hold at most three
// quarters of the queue, so that there is always room for another's; requests
// without a tenant share no limit but the queue's. The scheduler's mutex guards
// it.
type waiting struct {
	size    int
	n       int
	tenants map[string]*line
	turns   list.List // of *line, none empty; whose turn it is stands first
}

// line is the requests of one tenant that wait.
type line struct {
	tenant  string
	entries list.List     // of *entry
	turn    *list.Element // in turns
}

func newWaiting(size int) *waiting {
	return &waiting{size: size, tenants: make(map[string]*line)}
}

func (w *waiting) len() int { return w.n }

// admits reports whether a new request of the tenant finds room, when stock
// pods are ready for the requests that wait already.
func (w *waiting) admits(tenant string, stock int) bool {
	if w.n-stock >= w.size {
		return false
	}
	l := w.tenants[tenant]
	return tenant == "" || l == nil || l.entries.Len()-stock < w.size-w.size/4
}

// push puts a new request at the end of its tenant's line, or one that lost its
// pod at the front, whose turn it then still is.
func (w *waiting) push(e *entry, front bool) {
	l := w.tenants[e.Tenant]
	if l == nil {
		l = &line{tenant: e.Tenant}
		l.turn = w.turns.PushBack(l)
		w.tenants[e.Tenant] = l
	}
	if front {
		e.element = l.entries.PushFront(e)
		w.turns.MoveToFront(l.turn)
	} else {
		e.element = l.entries.PushBack(e)
	}
	w.n++
}

// first is the request whose turn it is; nil if none waits.
func (w *waiting) first() *entry {
	if turn := w.turns.Front(); turn != nil {
		return turn.Value.(*line).entries.Front().Value.(*entry)
	}
	return nil
}

// pop takes a request out that gets its pod: the next turn is another tenant's.
func (w *waiting) pop(e *entry) {
	w.turns.MoveToBack(w.tenants[e.Tenant].turn)
	w.remove(e)
}

// remove takes a request out, wherever it stands.
func (w *waiting) remove(e *entry) {
	l := w.tenants[e.Tenant]
	l.entries.Remove(e.element)
	e.element = nil
	w.n--
	if l.entries.Len() == 0 {
		w.turns.Remove(l.turn)
		delete(w.tenants, l.tenant)
	}
}
