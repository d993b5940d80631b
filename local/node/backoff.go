package node

import "time"

const (
	// backoffBase, backoffMax and backoffReset shape the pauses between starts
	// of a container: none before the second, then a second, doubling up to a
	// minute, from the beginning after ten minutes of running. A kubelet's are
	// ten times as long; here a person waits.
	backoffBase  = time.Second
	backoffMax   = time.Minute
	backoffReset = 10 * time.Minute
)

// backoff counts; the zero value is fresh.
type backoff struct{ next time.Duration }

// after returns the pause before the next start of what ran for d.
func (b *backoff) after(d time.Duration) time.Duration {
	if d >= backoffReset {
		b.next = 0
	}
	pause := b.next
	if b.next *= 2; b.next == 0 {
		b.next = backoffBase
	}
	b.next = min(b.next, backoffMax)
	return pause
}
