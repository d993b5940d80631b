package sandbox

// turns are the orders that wait for their turn, oldest first. They are in a queue for each
// bound that holds for them, so that orders without room are not walked past again and again.
// freezerOrders.mu guards it.
type turns struct {
	queues [4][]waiting // some may have been replaced or forgotten since
	last   uint64       // number of the last that came
}

type waiting struct {
	*freezerOrder
	number uint64
}

// The bounds of an order; both may hold.
const (
	boundSaves  = 1 << iota // it keeps files: maxSaves
	boundSilent             // its last try was unanswered: maxSilent
)

func boundsOf(o *freezerOrder) (bounds int) {
	if o.of.Saves {
		bounds |= boundSaves
	}
	if o.unknown.tries > 0 {
		bounds |= boundSilent
	}
	return bounds
}

func (t *turns) push(o *freezerOrder) {
	t.last++
	o.queued = true
	bounds := boundsOf(o)
	t.queues[bounds] = append(t.queues[bounds], waiting{o, t.last})
}

// pop takes the order that has waited longest of those for which there is room within all
// bounds but full; nil if there is none.
func (t *turns) pop(full int) *freezerOrder {
	oldest := -1
	for bounds, queue := range t.queues {
		if len(queue) > 0 && bounds&full == 0 && (oldest < 0 || queue[0].number < t.queues[oldest][0].number) {
			oldest = bounds
		}
	}
	if oldest < 0 {
		return nil
	}
	o := t.queues[oldest][0].freezerOrder
	t.queues[oldest][0] = waiting{} // so that it can be collected
	t.queues[oldest] = t.queues[oldest][1:]
	o.queued = false
	return o
}

func (t *turns) len() (n int) {
	for _, queue := range t.queues {
		n += len(queue)
	}
	return n
}
