package schedule

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/bubble"
)

// virtualRounds of rapid's checks, each of which begins with small plans. A short run
// ends as soon as each fault has met each outcome often enough, with virtualSteps.
const (
	virtualRounds = 8
	virtualSteps  = 5000
)

// Whatever happens in whatever order: one pod for a sandbox and one sandbox for a
// pod, one answer for a request and that in time, no pod for a request that has left,
// and nothing lost for good. In virtual time, on a fake API server, where nothing but
// the plan decides what happens and rapid can shrink it.
func TestModel(t *testing.T) {
	total := newTally()
	for range virtualRounds {
		rapid.Check(t, func(rt *rapid.T) {
			p := plans(virtualOps, 20, 120).Draw(rt, "plan")
			var broken []string
			bubble.Test(t, func(*testing.T) { broken = p.run(&virtual{newFakeAPI()}, total) })
			if len(broken) > 0 {
				rt.Fatalf("%s", strings.Join(broken, "\n"))
			}
		})
		if t.Failed() {
			return
		}
		if !full() && len(total.missing(virtualSteps, required)) == 0 {
			break
		}
	}
	t.Log(total)
	if missing := total.missing(virtualSteps, required); len(missing) > 0 {
		t.Errorf("that proves too little:\n%s", strings.Join(missing, "\n"))
	}
}

// virtualOps leave little stock and old views: most requests are in trouble.
var virtualOps = []weighted{
	{"claim", 12}, {"refill", 10}, {"cancel", 3}, {"end", 3}, {"delete pod", 3}, {"follow", 4},
	{"crash", 1}, {"deliver", 16}, {"drop watch", 3}, {"wait", 5}, {"busy", 1},
}

// virtual is a fake API server in a synctest bubble.
type virtual struct{ api *fakeAPI }

func (*virtual) pace() pace {
	return pace{
		slow: 3 * time.Second, late: 7 * time.Second, busy: 3 * time.Second, ttl: DefaultReservationTTL,
		deadlines: []time.Duration{500 * time.Millisecond, 3 * time.Second, 12 * time.Second, 40 * time.Second},
		waits:     []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 6 * time.Second, 31 * time.Second},
		shown:     8,
	}
}

func (w *virtual) through(answer func(call) error) client.Client {
	w.api.answers(func(name string, apply func() error) error {
		verb, pod, _ := strings.Cut(name, " ")
		return answer(call{verb: verb, pod: pod, apply: apply, invalid: func() error {
			if w.api.isIdle(pod) {
				return invalidImage()
			}
			return apply()
		}})
	})
	return w.api
}

func (w *virtual) truth() client.Client { return noFaults{w.api} }
func (*virtual) namespace() string      { return "ns" }
func (w *virtual) idle(name string)     { w.api.idle(name) }
func (*virtual) pause()                 { synctest.Wait() }
func (*virtual) calm()                  {}
func (*virtual) notes(*asked) []string  { return nil }

// until waits for longer than every deadline, settling and reservation.
func (*virtual) until(func() bool) {
	time.Sleep(2 * time.Minute)
	synctest.Wait()
}

func (w *virtual) remove(name string) bool {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	_, there := w.api.pods[name]
	delete(w.api.pods, name)
	return there
}

func (w *virtual) pods() []*corev1.Pod {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	all := make([]*corev1.Pod, 0, len(w.api.pods))
	for _, pod := range w.api.pods {
		all = append(all, pod.DeepCopy())
	}
	return all
}

func (w *virtual) watch() view { return &lagging{w, map[types.UID]string{}} }

// noFaults is the API server as others reach it.
type noFaults struct{ *fakeAPI }

func (n noFaults) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.apply(o.(*corev1.Pod), data)
}

func (n noFaults) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	pod := n.pods[key.Name]
	if pod == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
	}
	pod.DeepCopyInto(o.(*corev1.Pod))
	return nil
}

// digest tells states of a pod apart.
func digest(pod *corev1.Pod) string {
	return pod.Labels[v1alpha1.LabelPhase] + pod.Annotations[v1alpha1.AnnotationClaim]
}

// lagging is a view that shows what differs from what it has shown.
type lagging struct {
	*virtual
	seen map[types.UID]string
}

// changes are the pods whose present state was not shown; nil for one that is gone.
func (v *lagging) changes() map[types.UID]*corev1.Pod {
	out := map[types.UID]*corev1.Pod{}
	for uid := range v.seen {
		out[uid] = nil
	}
	for _, pod := range v.pods() {
		if v.seen[pod.UID] == digest(pod) {
			delete(out, pod.UID)
		} else {
			out[pod.UID] = pod
		}
	}
	return out
}

func (v *lagging) behind() bool { return len(v.changes()) > 0 }

func (v *lagging) show(n int, s *PoolScheduler) {
	for uid, pod := range v.changes() {
		if n--; n < 0 {
			return
		}
		if pod == nil {
			delete(v.seen, uid)
			s.Forget(uid)
			continue
		}
		v.seen[uid] = digest(pod)
		s.Offer(pod)
	}
}

func (v *lagging) relist(s *PoolScheduler) {
	for uid := range v.seen {
		v.seen[uid] = "?"
	}
	v.show(1<<20, s)
}

func (*lagging) stop() {}
