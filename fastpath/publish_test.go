package fastpath

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
)

// Once a word names an entry, the entry has the bytes of the route that was published
// with it: never those of the route that had the entry before.
func TestWordIsPublishedLast(t *testing.T) {
	const rounds = 100_000
	w := newWorld(t, 100)
	table := w.table
	first := int(hashID(table.key, generatedID)&(table.g.buckets-1)) * ways // the bucket's first word is free
	var putting atomic.Int64
	stop, bad := make(chan struct{}), make(chan error, 1)
	go func() { // reads the table as a worker of Envoy does
		defer close(bad)
		for {
			select {
			case <-stop:
				return
			default:
			}
			n := putting.Load()
			word := atomic.LoadUint64(u64(table.buckets, first*8))
			if word == 0 {
				continue
			}
			e := table.entries[(int(word&indexMask)-1)*entrySize:][:entrySize]
			uid := e[16+int(e[8])+int(e[9]):][:16]
			if got, err := strconv.ParseInt(string(uid), 10, 64); err == nil && got < n {
				bad <- fmt.Errorf("the word of route %d names the bytes of route %d", n, got)
				return
			}
		}
	}()
	for n := range rounds {
		r := route(generatedID, "10.0.0.5")
		r.PodUID = fmt.Sprintf("%016d", n)
		putting.Store(int64(n))
		w.put(t, r)
		w.cache.Drop(r)
		if err := table.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-bad; err != nil {
		t.Error(err)
	}
}
