package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// shape is what pods of one template have in common for a claim. Pods share it,
// so that a pick compares images once a shape and not once a pod.
type shape struct {
	containers []container
	hooks      bool // they have post-start hooks, so a claim leaves them starting
	cordoned   bool // their node is cordoned
	pods       int  // of this shape, in whatever state
	ready      int  // of them in the queue
	fit        fit  // what the last bestFit found
}

// fit is how well a shape suits what a claim wants.
type fit int

const (
	fitsNot             fit = iota // it lacks a container that is to get an image
	fitsChangedCordoned            // fitsChanged, on a cordoned node, whose pods are evicted soon
	fitsAsIsCordoned               // fitsAsIs, on a cordoned node
	fitsChanged                    // some container's image has to change
	fitsAsIs                       // it has the images already
)

func (f fit) onCordonedNode() fit {
	switch f {
	case fitsChanged:
		return fitsChangedCordoned
	case fitsAsIs:
		return fitsAsIsCordoned
	default:
		return f
	}
}

// shapeOf returns the pod's shape, as one of no pods.
func (s *stock) shapeOf(pod *corev1.Pod) *shape {
	return &shape{containers: containersOf(pod), hooks: v1alpha1.HasPostStartHooks(pod), cordoned: s.cordoned[pod.Spec.NodeName]}
}

// equal reports whether a claim needs to know the same of both.
func (a *shape) equal(b *shape) bool {
	return a.hooks == b.hooks && a.cordoned == b.cordoned && slices.Equal(a.containers, b.containers)
}

// join counts a pod of this shape in and returns the shape to keep: a known one that
// equals it, else this one.
func (s *stock) join(of *shape) *shape {
	for _, known := range s.shapes {
		if known.equal(of) {
			known.pods++
			return known
		}
	}
	of.pods = 1
	s.shapes = append(s.shapes, of)
	return of
}

// leave counts a pod out.
func (s *stock) leave(old *shape) {
	if old.pods--; old.pods == 0 {
		s.shapes = slices.DeleteFunc(s.shapes, func(one *shape) bool { return one == old })
	}
}

// setCordoned tells which nodes are cordoned.
func (s *stock) setCordoned(nodes map[string]bool) {
	s.cordoned = nodes
	for _, rec := range s.pods {
		if old := rec.shape; old.cordoned != nodes[rec.node] {
			s.reshape(rec, &shape{containers: old.containers, hooks: old.hooks, cordoned: !old.cordoned})
		}
	}
}

// reshape gives a pod that has changed its new shape.
func (s *stock) reshape(rec *podRecord, now *shape) {
	old := rec.shape
	rec.shape = s.join(now)
	if rec.state == ready {
		old.ready--
		rec.shape.ready++
	}
	s.leave(old)
}

// bestFit returns how well the best pod of the queue suits the images, and notes on
// each shape how well it does.
func (s *stock) bestFit(images map[string]string) fit {
	best := fitsNot
	for _, one := range s.shapes {
		switch changes, err := imageChanges(one.containers, images); {
		case err != nil:
			one.fit = fitsNot
		case len(changes) > 0:
			one.fit = fitsChanged
		default:
			one.fit = fitsAsIs
		}
		if one.cordoned {
			one.fit = one.fit.onCordonedNode()
		}
		if one.ready > 0 {
			best = max(best, one.fit)
		}
	}
	return best
}
