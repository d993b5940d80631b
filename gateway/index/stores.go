package index

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// podStore applies pods, keyed by UID: a name may be used again.
func (x *Index) podStore() *store {
	return &store{
		kind: kindPods,
		read: func(obj any) (string, func(), error) {
			switch o := obj.(type) {
			case listedPod:
				return o.uid, func() { x.setPod(o.uid, o.pod, nil) }, nil
			case *corev1.Pod:
				r, err := newPod(o)
				return string(o.UID), func() { x.setPod(r.uid, r, o) }, err
			}
			return "", nil, unexpected(obj)
		},
		gone: func(uid string) { x.setPod(uid, nil, nil) },
		keys: func() []string { return keysOf(x, x.pods) },
		compact: func(obj any) (any, error) {
			o, ok := obj.(*corev1.Pod)
			if !ok {
				return obj, nil
			}
			// A pod that is offered to a scheduler is needed whole. One that makes no
			// record is dealt with where the list is applied.
			if r, err := newPod(o); err == nil && !r.available() {
				return listedPod{r}, nil
			}
			o.ManagedFields = nil
			return o, nil
		},
		rewound: x.podsRewound,
		progress: func(rv uint64) {
			if x.rewound {
				return // an event after a list that is to be made anew
			}
			x.podRV.Store(max(x.podRV.Load(), rv))
			x.hooks.PodsSeen(rv)
		},
	}
}

// podsRewound reports whether a complete list is older than what was seen before: then
// the API server has gone back to an older state, as after a restore of etcd, and
// versions of before compare with none of now. Fences that came while it was made count
// for the next list alone, which begins after the hook.
func (x *Index) podsRewound(rv uint64) bool {
	seen := x.podRV.Load()
	x.rewound = rv < seen
	if x.rewound {
		x.log.Error("the API server has gone back to an older state: routes are dropped and pods listed anew", "from", seen, "to", rv)
		x.podRV.Store(rv)
		x.hooks.PodsRewound()
	}
	return x.rewound
}

func (x *Index) setPod(uid string, record *pod, typed *corev1.Pod) {
	old := replace(x, x.pods, uid, record)
	x.hooks.podChanged(old, record, typed)
}

func (x *Index) sandboxStore() *store {
	return &store{
		kind: kindSandboxes,
		read: func(obj any) (string, func(), error) {
			switch o := obj.(type) {
			case listedSandbox:
				return o.id, func() { x.setSandbox(o.id, o.sandbox) }, nil
			case *v1alpha1.Sandbox:
				return o.Name, func() { x.setSandbox(o.Name, newSandbox(o)) }, nil
			}
			return "", nil, unexpected(obj)
		},
		gone: func(id string) { x.setSandbox(id, nil) },
		keys: func() []string { return keysOf(x, x.sandboxes) },
		compact: func(obj any) (any, error) {
			if o, ok := obj.(*v1alpha1.Sandbox); ok {
				return listedSandbox{o.Name, newSandbox(o)}, nil
			}
			return obj, nil
		},
		progress: func(uint64) {},
	}
}

func (x *Index) setSandbox(id string, record *sandbox) {
	old := replace(x, x.sandboxes, id, record)
	x.countPaused(old, record)
	x.hooks.sandboxChanged(id, old, record)
}

func (x *Index) poolStore() *store {
	return &store{
		kind: kindPools,
		read: func(obj any) (string, func(), error) {
			o, ok := obj.(*v1alpha1.SandboxPool)
			if !ok {
				return "", nil, unexpected(obj)
			}
			return o.Namespace + "/" + o.Name, func() { x.setPool(o) }, nil
		},
		gone:     x.removePool,
		keys:     x.poolKeys,
		progress: func(uint64) {},
	}
}

func (x *Index) templateStore() *store {
	return &store{
		kind: kindTemplates,
		read: func(obj any) (string, func(), error) {
			o, ok := obj.(*v1alpha1.SandboxTemplate)
			if !ok {
				return "", nil, unexpected(obj)
			}
			return o.Name, func() { replace(x, x.templates, o.Name, &o.Spec) }, nil
		},
		gone:     func(name string) { replace(x, x.templates, name, nil) },
		keys:     func() []string { return keysOf(x, x.templates) },
		progress: func(uint64) {},
	}
}

// replace puts a record in place of the one before, which it returns; nil
// removes. Only the caller changes m.
func replace[R any](x *Index, m map[string]*R, key string, record *R) *R {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := m[key]
	if record == nil {
		delete(m, key)
	} else {
		m[key] = record
	}
	return old
}

func keysOf[R any](x *Index, m map[string]*R) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Collect(maps.Keys(m))
}

var _ metav1.ObjectMetaAccessor = listedPod{}
