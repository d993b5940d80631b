package sandboxpool

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// firstSeen holds when this process first saw each pod warming, or starting for its claim.
// The times in the pods' annotations are not used, since they come from other clocks: those
// of the gateway that claimed, of the API server, of an earlier controller. The zero value
// is ready. It is safe for concurrent use.
type firstSeen struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]map[seenKey]time.Time
}

// seenKey tells apart what is counted anew: another claim of a pod, and a pod that
// warms again.
type seenKey struct {
	uid             types.UID
	phase           v1alpha1.PodPhase
	claim, recycled string
}

func seenKeyOf(pod *corev1.Pod) seenKey {
	return seenKey{pod.UID, v1alpha1.PhaseOf(pod), pod.Annotations[v1alpha1.AnnotationClaim], pod.Annotations[v1alpha1.AnnotationRecycled]}
}

// update takes in the pods of a pool that are not settled, and returns how long each
// that warms or starts has been seen to do so. The others, and pods that are gone, are
// forgotten.
func (s *firstSeen) update(pool types.NamespacedName, pods []openPod, now time.Time) map[types.UID]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.pools[pool]
	since, waited := map[seenKey]time.Time{}, map[types.UID]time.Duration{}
	for _, p := range pods {
		pod := p.pod
		if phase := v1alpha1.PhaseOf(pod); phase != v1alpha1.PodWarming && phase != v1alpha1.PodStarting {
			continue
		}
		key := seenKeyOf(pod)
		first, known := before[key]
		if !known {
			first = now
		}
		since[key], waited[pod.UID] = first, now.Sub(first)
	}
	if len(since) == 0 {
		delete(s.pools, pool)
		return waited
	}
	if s.pools == nil {
		s.pools = map[types.NamespacedName]map[seenKey]time.Time{}
	}
	s.pools[pool] = since
	return waited
}
