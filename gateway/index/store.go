package index

import (
	"fmt"
	"log/slog"

	"k8s.io/client-go/tools/cache"

	"github.com/sandlane/sandlane/failpoint"
)

// store is what a Reflector fills: it passes each object on as a record and
// keeps none itself. Its methods are called by the Reflector's goroutine alone.
// It never returns an error: the Reflector would only log it and go on, and the
// record would stay as it was. An object that makes no record counts as gone.
type store struct {
	kind string
	log  *slog.Logger
	// read returns the key of a typed object, or of what compact made of one, and
	// a function that applies it.
	read func(obj any) (key string, apply func(), err error)
	// gone applies that the object of this key is no more.
	gone func(key string)
	// keys returns the keys of all records.
	keys func() []string
	// compact, if not nil, makes an object of a first list smaller.
	compact cache.TransformFunc
	// rewound, if not nil, is asked when a complete list of rv has been applied whether
	// it is older than one before. Then it is no progress, and another is wanted.
	rewound func(rv uint64) bool
	// relist starts over, with another list.
	relist func()
	// progress is called when everything up to rv has been applied.
	progress func(rv uint64)
	// listed is called after each complete list.
	listed func(objects int)
	events func()
}

var (
	_ cache.TransformingStore      = (*store)(nil)
	_ cache.ResourceVersionUpdater = (*store)(nil)
)

// Add applies a new or changed object.
func (s *store) Add(obj any) error {
	failpoint.Hit("index/" + s.kind)
	s.events()
	s.set(obj)
	return nil
}

// Update applies a changed object.
func (s *store) Update(obj any) error { return s.Add(obj) }

// Delete applies that the object is gone, or has left the selection.
func (s *store) Delete(obj any) error {
	failpoint.Hit("index/" + s.kind)
	s.events()
	if key, _, err := s.read(obj); key != "" {
		s.gone(key)
	} else {
		s.log.Error("index: a deleted object without a key", "kind", s.kind, "error", err)
	}
	return nil
}

// Replace applies a complete list: what it lacks is gone.
func (s *store) Replace(objects []any, rv string) error {
	failpoint.Hit("index/" + s.kind)
	present := make(map[string]struct{}, len(objects))
	for _, obj := range objects {
		if key := s.set(obj); key != "" {
			present[key] = struct{}{}
		}
	}
	for _, key := range s.keys() {
		if _, ok := present[key]; !ok {
			s.gone(key)
		}
	}
	if n, err := parseRV(rv); err == nil && s.rewound != nil && s.rewound(n) {
		s.relist()
		return nil
	}
	s.UpdateResourceVersion(rv)
	s.listed(len(objects))
	return nil
}

// Resync has nothing to do: there is no period.
func (s *store) Resync() error { return nil }

// Transformer makes the Reflector keep records, not objects, while a first list
// streams in.
func (s *store) Transformer() cache.TransformFunc { return s.compact }

// UpdateResourceVersion is called by the Reflector after each event, bookmarks
// included.
func (s *store) UpdateResourceVersion(rv string) {
	n, err := parseRV(rv)
	if err != nil {
		s.log.Error("index: progress of a watch", "kind", s.kind, "error", err)
		return
	}
	s.progress(n)
}

// set applies an object and returns its key.
func (s *store) set(obj any) string {
	key, apply, err := s.read(obj)
	switch {
	case err == nil:
		apply()
	case key == "":
		s.log.Error("index: an object without a key", "kind", s.kind, "error", err)
	default:
		s.log.Error("index: object taken for gone", "kind", s.kind, "error", err)
		s.gone(key)
	}
	return key
}

func unexpected(obj any) error { return fmt.Errorf("unexpected object %T", obj) }
