package sandboxpool

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/podstate"
)

// counts is a pool's pods by what they are to scaling.
type counts struct {
	warming, idle, unavailableIdle, starting, running, stopping, failed int
	// total counts every pod object that maxPods bounds: also those being deleted.
	total int
	// deleting of the total are on their way out.
	deleting int
	// proven are pods of the current template that have been Ready once.
	proven int
	// recycling of the stopping ones are on their way back to warming.
	recycling int
	// spare are unclaimed pods that may be deleted, in the order to delete.
	spare []*corev1.Pod
	// ordered are those of the spare ones that were made for claims that waited and
	// stay for now.
	ordered map[*corev1.Pod]bool
	// outdated are idle pods of another template; unavailableOutdated of them are
	// not Ready.
	outdated, unavailableOutdated int
	// waiting are warming pods whose address is still not free after
	// addressPatience, the oldest first. They are no stock, and not among warming.
	waiting []*corev1.Pod
	// stuck is what keeps one of the warming pods from starting; nil if nothing is known.
	stuck *podstate.PodStatusDetail
	// progress is how far one of the warming pods is, where its node says that.
	progress string
	// cannotStart of the warming pods wait for what no later try can mend.
	cannotStart int
}

// unclaimed counts the pods that are or become stock.
func (c counts) unclaimed() int { return c.warming + c.idle }

// coming counts the pods that are or become stock, and those that may be recycled into it.
func (c counts) coming() int { return c.unclaimed() + c.recycling }

// available counts the pods that a claim can have now.
func (c counts) available() int { return c.idle - c.unavailableIdle }

// goneFor is how long after its grace period a pod that is being deleted still
// counts for maxPods: the kubelet of a lost node confirms nothing for hours.
const goneFor = time.Minute

// countPods counts the pool's pods. Pods that are being deleted count only towards
// the total; those of an earlier pool of the same name too. waiting holds the UIDs
// of pods that wait for their address for too long, settled counts further running
// pods of the pool by the hash of their template. It is pure.
func countPods(pods []openPod, settled map[string]int, hash string, pool *v1alpha1.SandboxPool, waiting map[types.UID]bool, now time.Time) counts {
	c := counts{total: len(pods)}
	for made, n := range settled {
		c.total, c.running = c.total+n, c.running+n
		if hash == "" || made == hash {
			c.proven += n
		}
	}
	for _, p := range pods {
		pod := p.pod
		switch at := pod.DeletionTimestamp; {
		case at != nil && now.Sub(at.Time) > goneFor:
			c.total--
		case at != nil:
			c.deleting++
		case pool != nil && metav1.IsControlledBy(pod, pool):
			c.count(pod, hash, waiting[pod.UID])
		}
	}
	// What serves no sandbox yet goes first, then the longest idle.
	sortSpare(c.spare, hash)
	for _, pod := range c.spare {
		if isOrdered(pod, now) && !draining(pool) {
			if c.ordered == nil {
				c.ordered = map[*corev1.Pod]bool{}
			}
			c.ordered[pod] = true
		}
	}
	slices.SortStableFunc(c.waiting, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return c
}

func (c *counts) count(pod *corev1.Pod, hash string, waits bool) {
	old := outdated(pod, hash)
	switch v1alpha1.PhaseOf(pod) {
	case v1alpha1.PodWarming:
		if waits {
			c.waiting = append(c.waiting, pod)
			break
		}
		c.warming++
		c.spare = append(c.spare, pod)
		if d := podstate.BuildSandboxStatusDetailFromPod(pod); d != nil && !old {
			if v1alpha1.KeepsFromStarting(steady(d.Reason)) {
				c.cannotStart++
			}
			if c.stuck == nil {
				c.stuck = d
			}
		}
		c.progress = cmp.Or(c.progress, podstate.Progress(pod))
		return
	case v1alpha1.PodIdle:
		c.idle++
		c.spare = append(c.spare, pod)
		if !ready(pod) {
			c.unavailableIdle++
		}
		if old {
			c.outdated++
			if !ready(pod) {
				c.unavailableOutdated++
			}
		}
	case v1alpha1.PodStarting:
		c.starting++
	case v1alpha1.PodRunning:
		c.running++
	case v1alpha1.PodStopping:
		c.stopping++
		if _, ok := pod.Annotations[v1alpha1.AnnotationRecycling]; ok {
			c.recycling++
		}
		return
	default:
		c.failed++
		return
	}
	if !old {
		c.proven++
	}
}

// victims are n of the spare pods, in the order to delete: those that were ordered and
// stay for now come last.
func (c counts) victims(n int) []*corev1.Pod {
	if len(c.ordered) == 0 {
		return c.spare[:n]
	}
	order := make([]*corev1.Pod, 0, len(c.spare))
	for _, stays := range []bool{false, true} {
		for _, pod := range c.spare {
			if c.ordered[pod] == stays {
				order = append(order, pod)
			}
		}
	}
	return order[:n]
}

// sortSpare reads each pod's time once: a stock may be thousands.
func sortSpare(spare []*corev1.Pod, hash string) {
	type ranked struct {
		pod   *corev1.Pod
		rank  int
		since time.Time
	}
	all := make([]ranked, len(spare))
	for i, p := range spare {
		all[i] = ranked{p, rank(p, hash), idleSince(p)}
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(a.rank-b.rank, a.since.Compare(b.since), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	for i := range all {
		spare[i] = all[i].pod
	}
}

func rank(p *corev1.Pod, hash string) int {
	switch {
	case v1alpha1.PhaseOf(p) == v1alpha1.PodWarming:
		return 0
	case outdated(p, hash) && !ready(p):
		return 1
	case outdated(p, hash):
		return 2
	case !ready(p):
		return 3
	default:
		return 4
	}
}

// outdated: the pod was made from another template. An empty hash is a template
// that cannot be read, against which nothing is outdated.
func outdated(p *corev1.Pod, hash string) bool {
	return hash != "" && p.Annotations[v1alpha1.AnnotationTemplateHash] != hash
}

// idleSince is when the pod turned idle, or was created if it has not.
func idleSince(p *corev1.Pod) time.Time {
	if at, err := time.Parse(time.RFC3339Nano, p.Annotations[v1alpha1.AnnotationIdleSince]); err == nil {
		return at
	}
	return p.CreationTimestamp.Time
}
