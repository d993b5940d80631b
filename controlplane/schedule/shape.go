package schedule

import "slices"

// shape is what pods of one template have in common for a claim. Pods share it,
// so that a pick compares images once a shape and not once a pod.
type shape struct {
	containers []container
	pods       int  // of this shape, in whatever state
	ready      int  // of them in the queue
	fits       bool // what the last someFit found
}

// join counts a pod in and returns its shape.
func (s *stock) join(containers []container) *shape {
	for _, known := range s.shapes {
		if slices.Equal(known.containers, containers) {
			known.pods++
			return known
		}
	}
	fresh := &shape{containers: containers, pods: 1}
	s.shapes = append(s.shapes, fresh)
	return fresh
}

// leave counts a pod out.
func (s *stock) leave(old *shape) {
	if old.pods--; old.pods == 0 {
		s.shapes = slices.DeleteFunc(s.shapes, func(one *shape) bool { return one == old })
	}
}

// reshape gives a pod whose images were changed its new shape.
func (s *stock) reshape(rec *podRecord, containers []container) {
	old := rec.shape
	rec.shape = s.join(containers)
	if rec.state == ready {
		old.ready--
		rec.shape.ready++
	}
	s.leave(old)
}

// someFit reports whether a pod of the queue can be claimed without a change of
// image, and notes it on each shape. A shape that cannot give what is wanted,
// since it lacks a container, does not fit.
func (s *stock) someFit(images map[string]string) bool {
	found := false
	for _, one := range s.shapes {
		changes, err := imageChanges(one.containers, images)
		one.fits = err == nil && len(changes) == 0
		found = found || one.fits && one.ready > 0
	}
	return found
}
