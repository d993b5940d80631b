package fastpath

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandlane/sandlane/routecache"
)

// Options configure a Table. All but Hits and Log are required.
type Options struct {
	// Folder holds the files, on tmpfs. Envoy's module is configured with the same folder.
	Folder string
	// Size is how many routes the cache may hold.
	Size int
	// Lease returns how much longer this gateway may answer; 0 or less means that it may
	// not. It is called under the mutex of trust, and must take no lock.
	Lease func() time.Duration
	// Open reports whether requests for any port of the route's sandbox are answered
	// without a token and a key. It is called under a lock of the cache.
	Open func(*routecache.Route) bool
	// Full reports whether ExtProc is to decide on all requests for the route's sandbox, since
	// its namespace has many open. Nil: it never is. It is called under a lock of the cache.
	Full func(*routecache.Route) bool
	// EnvoyVersion asks the Envoy that runs here for its version.
	EnvoyVersion func(context.Context) (string, error)
	// Tested are the versions whose interface the module was tested with.
	Tested []string
	// Now is the clock of the routes' uses.
	Now func() int64
	// Hits, if it is not nil, is called with the number of requests that Envoy has answered
	// since its last call.
	Hits func(n uint64)
	// Log is slog.Default() if nil.
	Log *slog.Logger
}

// Table holds the routes from which Envoy answers. It implements routecache.Mirror. Safe
// for concurrent use.
type Table struct {
	o       Options
	control *control
	g       geometry
	key     uint64
	buckets []byte // of the routes file
	entries []byte
	marks   []byte

	settled atomic.Bool

	// mu guards the fields from here to noEntry, and the bytes of buckets and entries.
	mu      sync.Mutex
	taken   []bool   // by word: whether the word names an entry
	records []record // by entry
	free    []uint32 // entries that may be written
	retired []retired
	// removals counts the entries that were taken out.
	removals   uint64
	fullBucket uint64 // routes that found no free word in their bucket
	noEntry    uint64 // routes that found no free entry

	trust   trust
	metrics *metrics
}

// record is what this process itself remembers of an entry.
type record struct {
	use  *routecache.ClaimUse // of the entry's route; nil if the entry is free
	word uint32               // the word that names the entry: bucket × ways + way
	seen int64                // the use's value at the last call of Used
}

// retired is an entry that was taken out and that a worker may still read.
type retired struct {
	entry   uint32
	removal uint64 // its number among the removals
}

// Open opens the table of a folder, or makes it, and lets no worker answer from it
// until it is settled.
func Open(o Options) (*Table, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	c, err := openControl(o.Folder, true)
	if err != nil {
		return nil, err
	}
	c.distrust()
	t := &Table{o: o, control: c, g: geometryFor(o.Size), metrics: newMetrics()}
	if t.g.entries >= indexMask {
		return nil, fmt.Errorf("a table of %d routes is more than the fast path can have", o.Size)
	}
	t.trust.control = c
	if err := t.mapRoutes(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	t.taken = make([]bool, t.g.buckets*ways)
	t.records = make([]record, t.g.entries)
	t.free = make([]uint32, t.g.entries)
	for i := range t.free {
		t.free[i] = uint32(len(t.free) - 1 - i)
	}
	t.noteCounters()
	return t, nil
}

// mapRoutes maps the generation that the head names, if it has the right size and its
// files are the ones that Envoy may have mapped. Otherwise it removes the files of the former
// generation and makes a new one; an Envoy that has mapped the former files sees the new
// generation in the head.
func (t *Table) mapRoutes() error {
	generation := t.control.load(offGeneration)
	if t.control.headMatches(t.g) {
		inodes, err := t.mapGeneration(generation, 0)
		if err == nil && inodes == [2]uint64{t.control.load(offRoutesInode), t.control.load(offMarksInode)} {
			t.key = t.control.load(offKey)
			return nil
		}
	}
	t.control.store(offGeneration, 0)
	old, _ := filepath.Glob(filepath.Join(t.o.Folder, "[rm]*.*"))
	for _, path := range old {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the fast path's former files: %w", err)
		}
	}
	generation, t.key = randomWord(), randomWord()
	inodes, err := t.mapGeneration(generation, os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	t.control.writeHead(generation, t.key, t.g, inodes)
	return nil
}

func (t *Table) mapGeneration(generation uint64, create int) (inodes [2]uint64, err error) {
	routes, inode, err := mapFile(t.o.Folder, fmt.Sprintf("routes.%016x", generation), t.g.routesSize(), create)
	if err != nil {
		return inodes, err
	}
	inodes[0] = inode
	if t.marks, inodes[1], err = mapFile(t.o.Folder, fmt.Sprintf("marks.%016x", generation), t.g.marksSize(), create); err != nil {
		return inodes, err
	}
	split := int(t.g.buckets * ways * 8)
	t.buckets, t.entries = routes[:split], routes[split:]
	return inodes, nil
}

// Created reports whether Open found no table and made one. There may still be an Envoy that
// answers from a table of an earlier process, whose files were removed, until the trust in
// it has ended.
func (t *Table) Created() bool { return t.control.created }

// Settle takes the table over from an earlier process: afterwards no worker answers from
// routes which that process wrote, and Publish publishes routes. It must have returned before
// the gateway's lease is written. It waits as long as a worker is stuck in a reading.
func (t *Table) Settle(ctx context.Context) error {
	t.control.distrust()
	if err := t.control.waitWorkers(ctx); err != nil {
		return fmt.Errorf("settling the fast path: %w", err)
	}
	clear(t.marks)
	for i := range t.g.buckets * ways {
		atomic.StoreUint64(u64(t.buckets, int(i)*8), 0)
	}
	t.settled.Store(true)
	return nil
}

// Publish implements routecache.Mirror: it publishes r, unless Envoy must not answer from
// it or the table has no room for it. It is called under the lock of r's shard.
func (t *Table) Publish(r *routecache.Route) {
	flags := t.flags(r)
	if flags == 0 || !t.settled.Load() || r.Use.Holding() || r.Use.Full() {
		return
	}
	h := hashID(t.key, r.SandboxID)
	t.mu.Lock()
	defer t.mu.Unlock()
	word, ok := t.freeWord(h)
	if !ok {
		t.fullBucket++
		return
	}
	if len(t.free) == 0 {
		t.noEntry++
		return
	}
	destination := destinationOf(r)
	if destination == "" || !fits(r.SandboxID, destination, r.PodUID, r.ClaimID) {
		return
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.taken[word] = true
	t.records[i] = record{use: r.Use, word: word, seen: r.Use.Load()}
	writeEntry(t.entries[int(i)*entrySize:][:entrySize], t.key, uint64(i), flags, r.SandboxID, destination, r.PodUID, r.ClaimID)
	atomic.StoreUint32(u32(t.marks, int(i)*4), 0)
	r.SetSlot(i + 1)
	atomic.StoreUint64(u64(t.buckets, int(word)*8), h&^indexMask|uint64(i+1)) // published
}

// Retract implements routecache.Mirror: it takes r out of the table. No reading that begins
// afterwards finds r; Wait waits for the earlier ones. It is called under the lock of r's
// shard.
func (t *Table) Retract(r *routecache.Route) {
	if r.Slot() == 0 {
		return
	}
	i := r.Slot() - 1
	r.SetSlot(0)
	t.mu.Lock()
	defer t.mu.Unlock()
	word := t.records[i].word
	atomic.StoreUint64(u64(t.buckets, int(word)*8), 0)
	t.taken[word] = false // the word may name another entry from now on
	t.removals++
	t.retired = append(t.retired, retired{i, t.removals})
}

// Used implements routecache.Mirror: it reports whether Envoy has answered from r since
// the last call of Used for r. It is called under the lock of r's shard.
func (t *Table) Used(r *routecache.Route) bool {
	if r.Slot() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	i := r.Slot() - 1
	t.fold(i)
	s := &t.records[i]
	used := s.use.Load() != s.seen
	s.seen = s.use.Load()
	return used
}

// Wait implements routecache.Mirror: it returns nil when no worker can still answer from
// a route that was removed before the call, or the context's error.
func (t *Table) Wait(ctx context.Context) error {
	start := time.Now()
	if err := t.freeRetired(ctx); err != nil {
		return err
	}
	t.metrics.wait.Observe(time.Since(start).Seconds())
	return nil
}

// freeRetired waits for the workers, and then frees the entries that were retired before the
// wait, once their marks are folded.
func (t *Table) freeRetired(ctx context.Context) error {
	t.mu.Lock()
	before := t.removals
	t.mu.Unlock()
	if err := t.control.waitWorkers(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	left := t.retired[:0]
	for _, r := range t.retired {
		if r.removal > before {
			left = append(left, r)
			continue
		}
		t.fold(r.entry)
		t.records[r.entry] = record{}
		t.free = append(t.free, r.entry)
	}
	t.retired = left
	return nil
}

// Fold moves all marks of use that Envoy has set into the routes' uses: it folds them.
func (t *Table) Fold() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.records {
		if t.records[i].use != nil {
			t.fold(uint32(i))
		}
	}
}

// fold clears an entry's mark and notes the route's use at the present time, which is later
// than the use. mu is held.
func (t *Table) fold(i uint32) {
	mark := u32(t.marks, int(i)*4)
	if atomic.LoadUint32(mark) != 0 && atomic.SwapUint32(mark, 0) != 0 {
		t.records[i].use.Touch(t.o.Now())
	}
}

// destinationOf returns the address with a colon, to which the module adds the port. It is
// empty for an address with a zone.
func destinationOf(r *routecache.Route) string {
	var buf [len("[2001:db8:ffff:ffff:ffff:ffff:255.255.255.255]:")]byte
	switch {
	case r.Addr.Zone() != "":
		return ""
	case r.Addr.Is6():
		return string(append(r.Addr.AppendTo(append(buf[:0], '[')), "]:"...))
	}
	return string(append(r.Addr.AppendTo(buf[:0]), ':'))
}

// fits reports whether an entry has room for the texts, and all their characters are
// printable and no spaces: the module writes them into a header with spaces between them.
func fits(texts ...string) bool {
	sum := 0
	for _, s := range texts {
		sum += len(s)
		for i := range len(s) {
			if s[i] <= ' ' || s[i] > '~' {
				return false
			}
		}
	}
	return sum <= textSize
}

// flags returns for which ports Envoy answers from r; 0 for none.
func (t *Table) flags(r *routecache.Route) byte {
	var flags byte
	if t.o.Full != nil && t.o.Full(r) {
		return 0
	}
	if r.Guarded {
		flags |= flagGuarded
	}
	if !r.Private && t.o.Open(r) {
		flags |= flagOpen
	}
	return flags
}

// freeWord finds a free word in the bucket of the hash. mu is held.
func (t *Table) freeWord(h uint64) (word uint32, ok bool) {
	first := uint32(h&(t.g.buckets-1)) * ways
	for w := first; w < first+ways; w++ {
		if !t.taken[w] {
			return w, true
		}
	}
	return 0, false
}

// writeEntry writes an entry, which must be free.
func writeEntry(e []byte, key, index uint64, flags byte, texts ...string) {
	clear(e)
	at := 16
	for i, s := range texts {
		e[8+i] = byte(len(s))
		at += copy(e[at:], s)
	}
	e[12] = flags
	binary.LittleEndian.PutUint64(e, checkEntry(key, index, e))
}
