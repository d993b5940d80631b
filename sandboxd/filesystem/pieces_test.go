package filesystem

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
)

// A file that is written in more pieces than events may wait loses none of the other
// events: writes that follow each other are one.
func TestWritesInManyPiecesAreOneEvent(t *testing.T) {
	w := &watcher{changed: make(chan struct{}, 1)}
	c := &collector{}
	w.push("/d/f", "f", unix.IN_CREATE)
	for range 2 * maxPending {
		w.push("/d/f", "f", unix.IN_MODIFY)
		_ = c.add(&filesystempb.FilesystemEvent{Name: "f", Type: filesystempb.EventType_EVENT_TYPE_WRITE})
	}
	w.push("/d/g", "g", unix.IN_MODIFY)
	w.push("/d/f", "f", unix.IN_MODIFY)
	w.push("/d/f", "f", unix.IN_ATTRIB)
	w.push("/d/f", "f", unix.IN_MODIFY)
	if len(w.pending) != 6 || w.lost {
		t.Errorf("%d events wait, lost: %v", len(w.pending), w.lost)
	}
	_ = c.add(&filesystempb.FilesystemEvent{Name: "g", Type: filesystempb.EventType_EVENT_TYPE_WRITE})
	if events, err := c.take(); len(events) != 2 || err != nil {
		t.Errorf("%d events are collected: %v", len(events), err)
	}
}
