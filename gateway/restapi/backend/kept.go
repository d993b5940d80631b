package backend

import (
	"sync"
	"time"
	"unsafe"

	"github.com/sandlane/sandlane/gateway/restapi"
)

const (
	// keepFor is how long a list is used for later pages.
	keepFor = 10 * time.Second
	// keepBytes bounds what all kept lists together take in memory, about.
	keepBytes = 64 << 20
)

// keptList is what a list of a namespace's sandboxes returned. Immutable once it is put.
type keptList struct {
	version   string    // the API server's, of the whole list
	read      time.Time // when it was asked for
	sandboxes []restapi.Sandbox
	// unseen are those that the index did not know when the list was read: made a
	// moment before. The others it knows until their records are gone.
	unseen map[string]bool
	expiry *time.Timer // set by put
}

// size is about how many bytes the list takes.
func (l *keptList) size() int {
	const perString = 16 // beside its text: the header in the map
	n := 0
	for i := range l.sandboxes {
		s := &l.sandboxes[i]
		n += int(unsafe.Sizeof(*s)) + len(s.ID) + len(s.UID)
		for k, v := range s.Metadata {
			n += 2*perString + len(k) + len(v)
		}
	}
	return n
}

// keptLists are the last list of each namespace, while it is younger than keepFor
// and there is room. Safe for concurrent use; its zero value has none.
type keptLists struct {
	mu    sync.Mutex // guards the rest
	lists map[string]*keptList
	bytes int
}

// get returns a namespace's list that is not older than a version of it; nil if there
// is none, or if no version is given.
func (k *keptLists) get(namespace, atLeast string) *keptList {
	if atLeast == "" {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lists[namespace]
	if l == nil || time.Since(l.read) > keepFor || !notOlder(l.version, atLeast) {
		return nil
	}
	return l
}

// put keeps a list until it is too old, unless a newer one is there or it is too big.
// Where room is short the oldest go.
func (k *keptLists) put(namespace string, l *keptList) {
	size := l.size()
	if size > keepBytes || !notOlder(l.version, l.version) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if was := k.lists[namespace]; was != nil && !notOlder(l.version, was.version) {
		return
	}
	k.drop(namespace)
	for k.bytes+size > keepBytes {
		k.drop(k.oldest())
	}
	if k.lists == nil {
		k.lists = map[string]*keptList{}
	}
	k.lists[namespace] = l
	k.bytes += size
	l.expiry = time.AfterFunc(keepFor-time.Since(l.read), func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.lists[namespace] == l {
			k.drop(namespace)
		}
	})
}

// oldest returns the namespace whose list was read first. The caller holds mu.
func (k *keptLists) oldest() (namespace string) {
	var read time.Time
	for at, l := range k.lists {
		if read.IsZero() || l.read.Before(read) {
			namespace, read = at, l.read
		}
	}
	return namespace
}

// drop forgets a namespace's list, if there is one. The caller holds mu.
func (k *keptLists) drop(namespace string) {
	if l := k.lists[namespace]; l != nil {
		l.expiry.Stop() // it would keep the list in memory
		k.bytes -= l.size()
		delete(k.lists, namespace)
	}
}
