package index

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// history is what really happened, as the two streams carry it.
type history struct {
	rv        int
	pods      []func(*store) error
	podRVs    []int
	sandboxes []func(*store) error
	// over says which fences stand for which claim; running which answers were
	// true at some time.
	over    []overClaim
	running map[string]bool
}

type overClaim struct {
	claim string
	fence routecache.Fence
}

func (h *history) pod(p *corev1.Pod, phase v1alpha1.PodPhase) {
	h.rv++
	p = p.DeepCopy()
	p.ResourceVersion = fmt.Sprint(h.rv)
	p.Labels[v1alpha1.LabelPhase] = string(phase)
	h.pods = append(h.pods, func(s *store) error { return s.Update(p) })
	h.podRVs = append(h.podRVs, h.rv)
	if phase == v1alpha1.PodRunning {
		h.running[truth(p.Labels[v1alpha1.LabelSandboxID], p.Annotations[v1alpha1.AnnotationClaim], string(p.UID), p.Status.PodIP, uint64(h.rv))] = true
	}
}

func truth(id, claim, uid, addr string, rv uint64) string {
	return fmt.Sprintf("%s %s %s %s %d", id, claim, uid, addr, rv)
}

func (h *history) podGone(p *corev1.Pod) {
	h.rv++
	h.pods = append(h.pods, func(s *store) error { return s.Delete(p) })
	h.podRVs = append(h.podRVs, h.rv)
}

func (h *history) sandbox(s *v1alpha1.Sandbox) {
	h.sandboxes = append(h.sandboxes, func(st *store) error { return st.Update(s) })
}

func (h *history) sandboxGone(s *v1alpha1.Sandbox) {
	h.sandboxes = append(h.sandboxes, func(st *store) error { return st.Delete(s) })
}

// fenced notes that the claim is over: what pod objects older than the last pod
// write say about the address.
func (h *history) fenced(claim, addr string) {
	h.over = append(h.over, overClaim{claim, routecache.Fence{Addr: netip.MustParseAddr(addr), RV: uint64(h.rv)}})
}

// life is two addresses, three pods and four claims of two sandboxes: a claim on
// a pod that is recycled in place, the same sandbox on another pod, a pod killed
// from outside, and its address given to a new pod.
func life() *history {
	h := &history{running: map[string]bool{}}
	const a, b = "10.0.0.1", "10.0.0.2"
	p := func(sandbox, claim string) *corev1.Pod { return claimedPod("p", sandbox, claim, a, 0) }
	h.pod(idlePod("p", a, 0), v1alpha1.PodIdle)
	h.pod(idlePod("q", b, 0), v1alpha1.PodIdle)
	h.sandbox(boundSandbox("s", "c1", "p"))
	h.pod(p("s", "c1"), v1alpha1.PodStarting)
	h.pod(p("s", "c1"), v1alpha1.PodRunning)
	h.sandbox(ended(boundSandbox("s", "c1", "p")))
	h.pod(p("s", "c1"), v1alpha1.PodStopping)
	h.fenced("c1", a)
	h.sandboxGone(boundSandbox("s", "c1", "p"))
	h.pod(idlePod("p", a, 0), v1alpha1.PodIdle) // recycled
	h.pod(p("t", "c2"), v1alpha1.PodRunning)    // the pod write may come first
	h.sandbox(boundSandbox("t", "c2", "p"))
	h.sandbox(boundSandbox("s", "c3", "q")) // s again, elsewhere
	h.pod(claimedPod("q", "s", "c3", b, 0), v1alpha1.PodRunning)
	h.podGone(p("t", "c2")) // killed from outside
	h.sandbox(ended(boundSandbox("t", "c2", "p")))
	h.fenced("c2", a)
	h.pod(idlePod("r", a, 0), v1alpha1.PodIdle) // the address again
	h.sandbox(ended(boundSandbox("s", "c3", "q")))
	h.pod(claimedPod("q", "s", "c3", b, 0), v1alpha1.PodStopping)
	h.fenced("c3", b)
	h.sandboxGone(boundSandbox("s", "c3", "q"))
	h.sandboxGone(boundSandbox("t", "c2", "p"))
	h.sandbox(boundSandbox("s", "c4", "r"))
	h.pod(claimedPod("r", "s", "c4", a, 0), v1alpha1.PodRunning)
	return h
}

// However far each stream has come, an answer is one that was true when its pod
// record was, and one whose claim was fenced does not get into the cache.
func TestEveryInterleaving(t *testing.T) {
	h := life()
	answers, refused := 0, 0
	for i := range len(h.pods) + 1 {
		for j := range len(h.sandboxes) + 1 {
			cache := routecache.New(100)
			x, pods, sandboxes, _ := unstarted(Hooks{SandboxChanged: cache.Invalidate, PodsSeen: cache.PodsSeen})
			for n, apply := range h.pods[:i] {
				must(t, apply(pods))
				pods.UpdateResourceVersion(fmt.Sprint(h.podRVs[n]))
			}
			for _, apply := range h.sandboxes[:j] {
				must(t, apply(sandboxes))
			}
			for _, id := range []string{"s", "t"} {
				a := x.Resolve(id)
				if a.State != routing.Running {
					continue
				}
				answers++
				r := a.Route
				if !h.running[truth(r.SandboxID, r.ClaimID, r.PodUID, r.Addr.String(), r.PodRV)] || r.SandboxID != id {
					t.Errorf("%d pod and %d sandbox events: %+v was never true", i, j, r)
				}
				for _, over := range h.over {
					token := cache.Begin(id)
					must(t, cache.Fence(t.Context(), []routecache.Fence{over.fence}))
					r := *r
					r.Use = new(routecache.ClaimUse)
					put := cache.Put(token, &r) || cache.Put(cache.Begin(id), &r)
					if over.claim != r.ClaimID {
						continue
					}
					if put {
						t.Errorf("%d pod and %d sandbox events: %+v cached after its fence", i, j, r)
					}
					refused++
				}
			}
		}
	}
	if answers < 10 || refused < 10 {
		t.Errorf("%d answers, %d refused: the test tests nothing", answers, refused)
	}
}
