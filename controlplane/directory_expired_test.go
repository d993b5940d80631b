package controlplane

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// fakePods are the pods of the system namespace; its watch shows nothing.
type fakePods struct {
	mu   sync.Mutex
	pods []corev1.Pod
	err  error
}

func (f *fakePods) set(err error, pods ...*corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods, f.err = nil, err
	for _, p := range pods {
		f.pods = append(f.pods, *p)
	}
}

func (f *fakePods) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: f.pods}, f.err
}

func (f *fakePods) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewRaceFreeFake(), nil
}

// IsWatchListSemanticsUnSupported tells reflectors to list first.
func (*fakePods) IsWatchListSemanticsUnSupported() bool { return true }

// expire runs a gateway in a pod that is there, cuts it off the API server, and
// lets its lease run out; its server and its Envoy live.
func (s *simulation) expire(name, instance string) *gateway {
	s.t.Helper()
	s.pods.set(nil, gatewayPod())
	g := s.listen(name, instance)
	g.o.PodUID = "uid"
	g.start(s.t)
	after(time.Second)
	g.stop(s.t)
	g.cancel = nil
	after(leaseAndGrace + DefaultRefreshEvery)
	g.wantHeld(s.t, false, "its lease is over")
	return g
}

// unanswered asks for what is in use, in both ways.
func (s *simulation) unanswered(want, when string) {
	s.t.Helper()
	_, err := s.client.GetLastActive(s.t.Context())
	s.wantUnanswered(err, want, "a poll, "+when)
	_, err = s.client.PrepareRelease(s.t.Context(), releases)
	s.wantUnanswered(err, want, "a prepared release, "+when)
}

// Streams that Envoy took before its gateway's lease ran out are in use: the
// gateway is asked, though it owes no fence any more.
func TestExpiredGatewayIsAskedWhatIsInUse(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.expire("g1", "a")
		g.use.set(func(r *ActivityReport) { r.Entries = []Activity{{"sbx", "c", 0}} })
		g.releases.set(inUse("a"))
		if got, err := s.client.GetLastActive(t.Context()); err != nil || !got["sbx"].Equal(time.Now()) {
			t.Errorf("in use are %v, %v", got, err)
		}
		if got, err := s.client.PrepareRelease(t.Context(), releases); err != nil || !got["a"] {
			t.Errorf("a release finds in use %v, %v", got, err)
		}
		s.wantUnanswered(s.fence(7), "", "a fence")
		if g.fences.asked() != 0 {
			t.Error("it was asked for a fence, which it cannot owe")
		}
		g.use.set(func(r *ActivityReport) { r.Known = false })
		g.releases.set(func(context.Context) ([]string, bool) { return nil, false })
		s.unanswered("g1", "it does not know")
	})
}

// While it is silent anything may be in use, however long, for every controller;
// until its pod is over or gone.
func TestExpiredGatewayIsWaitedForAsLongAsItsPod(t *testing.T) {
	for name, over := range map[string]func(*simulation){
		"gone": func(s *simulation) { s.pods.set(nil) },
		"over": func(s *simulation) { s.pods.set(nil, gatewayPod(beingDeleted, all)) },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulation) {
				s.run("g2", "b")
				s.expire("g1", "a")
				s.cutOff("g1", true)
				s.unanswered("g1", "just after the lease")
				s.wantUnanswered(s.fence(7), "", "a fence")
				after(10 * time.Hour)
				s.unanswered("g1", "hours after the lease")
				wantNames(t, s.newDirectory(), "g1=revoked:a/1 g2=b/1", "the next controller")
				s.pods.set(errors.New("not now"))
				after(time.Minute)
				s.unanswered("g1", "its pod is unknown")
				s.pods.set(nil, gatewayPod(beingDeleted))
				after(time.Minute)
				s.unanswered("g1", "its pod is being deleted")
				if before := s.client.Floor(); time.Since(before) < time.Hour {
					t.Errorf("what it knows counts as lost since %v", time.Since(before))
				}
				over(s)
				after(2 * DefaultRefreshEvery)
				s.unanswered("", "its pod is "+name)
				if since := time.Since(s.client.Floor()); since > 2*DefaultRefreshEvery {
					t.Errorf("idle time counts from %v ago: what it knew is lost", since)
				}
				after(DefaultRefreshEvery) // what it knew is remembered as lost
				if s.api.get("g1") != nil {
					t.Error("its lease is still there")
				}
			})
		})
	}
}

// An expired gateway that is back owes fences again; one whose lease was deleted does not.
func TestExpiredGatewayComesBack(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.expire("g1", "a")
		l := s.api.get("g1")
		l.Spec.HolderIdentity, l.Spec.RenewTime = ptr.To("a/2"), ptr.To(metav1.NowMicro())
		s.api.write(l)
		s.wantUnanswered(s.fence(7), "g1", "an answer of its epoch before")
		g.epoch.Store(2)
		s.wantUnanswered(s.fence(7), "", "back")
		if g.fences.asked() != 2 {
			t.Errorf("it was asked %d times", g.fences.asked())
		}
		s.unanswered("", "back")
	})
	simulate(t, func(t *testing.T, s *simulation) {
		s.expire("g1", "a")
		s.cutOff("g1", true)
		s.api.drop("g1")
		s.wantUnanswered(s.fence(7), "", "its lease was deleted: it could not renew before")
		s.unanswered("g1", "its pod is there")
		s.pods.set(nil)
		after(2 * DefaultRefreshEvery)
		s.unanswered("", "its pod is gone")
	})
}
