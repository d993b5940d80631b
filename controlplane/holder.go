package controlplane

import (
	"fmt"
	"strconv"
	"strings"
)

// Holder is what the holderIdentity of a gateway's Lease says: which process
// holds it, in which epoch, and whether that still stands.
type Holder struct {
	// Mark is "" in a holder of the gateway's own making.
	Mark Mark
	// Instance is unique to a process; it contains neither "/" nor ":". It is empty where
	// the process is not known, in no lease.
	Instance string
	// Epoch is 1 at first; a process raises it each time it lost its lease.
	Epoch uint64
}

// Mark says what became of a holder.
type Mark string

// The marks that a holder may carry.
const (
	// MarkRevoked: a controller overwrote the holder, since it did not answer.
	MarkRevoked Mark = "revoked"
	// MarkLeft: the gateway stopped cleanly and holds no route.
	MarkLeft Mark = "left"
)

// String is the form that stands in the Lease: [mark:]instance/epoch.
func (h Holder) String() string {
	s := h.Instance + "/" + strconv.FormatUint(h.Epoch, 10)
	if h.Mark != "" {
		s = string(h.Mark) + ":" + s
	}
	return s
}

// with returns the same process and epoch under another mark.
func (h Holder) with(m Mark) Holder {
	h.Mark = m
	return h
}

// answersFor reports whether an answer of h settles what noted owes: it comes
// from the same process, and that has not gone back in time. Any answers for a process
// that is not known.
func (h Holder) answersFor(noted Holder) bool {
	return noted.Instance == "" || h.Instance == noted.Instance && h.Epoch >= noted.Epoch
}

// succeeds reports whether h is another holder than noted, of a gateway's own
// making. A lease's holders only move forward, thus h is the newer one.
func (h Holder) succeeds(noted Holder) bool {
	return h.Mark == "" && (h.Instance != noted.Instance || h.Epoch > noted.Epoch)
}

// ParseHolder reads what String writes. It refuses anything else.
func ParseHolder(s string) (Holder, error) {
	var h Holder
	rest := s
	if mark, after, ok := strings.Cut(s, ":"); ok {
		h.Mark, rest = Mark(mark), after
		if h.Mark != MarkRevoked && h.Mark != MarkLeft {
			return Holder{}, fmt.Errorf("lease holder %q: unknown mark", s)
		}
	}
	instance, epoch, ok := strings.Cut(rest, "/")
	n, err := strconv.ParseUint(epoch, 10, 64)
	if !ok || err != nil || !validInstance(instance) {
		return Holder{}, fmt.Errorf("lease holder %q is not [mark:]instance/epoch", s)
	}
	h.Instance, h.Epoch = instance, n
	return h, nil
}

func validInstance(s string) bool { return s != "" && !strings.ContainsAny(s, "/:") }
