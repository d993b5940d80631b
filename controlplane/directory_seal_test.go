package controlplane

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/bubble"
)

// A machine that stood still for longer than lease and grace, and its clocks with it: the
// gateway believes that its lease lasts. Its next renewal fails, for the lease was
// overwritten before it counted as over.
func TestAFrozenGatewayCannotRenewWhatIsOver(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		s.pods.set(nil, gatewayPod()) // so that its lease is not deleted
		g := s.listen("g1", "a")
		g.o.PodUID = "uid"
		g.start(t)
		after(time.Second)
		g.stop(t)
		g.cancel = nil
		frozen := g.now()
		g.now = func() instant { return frozen }
		s.cutOff("g1", true)
		s.wantUnanswered(s.fence(7), "g1", "it stands still")
		after(leaseAndGrace + DefaultRefreshEvery)
		s.wantUnanswered(s.fence(7), "", "its lease is over")
		g.wantHeld(t, true, "by its own clocks")
		if err := g.renew(t.Context(), time.Second); !errors.Is(err, errLost) {
			t.Errorf("it renewed a lease that the controller had counted as over: %v", err)
		}
	})
}

// A lease whose holder cannot be overwritten may be renewed yet: it is not over.
func TestALeaseIsNotOverBeforeItIsSealed(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		s.run("g1", "a").kill()
		s.setMute(true)
		after(2 * leaseAndGrace)
		s.wantUnanswered(s.fence(7), "g1", "the API server takes no write")
		s.setMute(false)
		s.wantUnanswered(s.fence(7), "", "it does again")
		if s.revoked("g1") != 1 {
			t.Errorf("its holder was overwritten %d times", s.revoked("g1"))
		}
	})
}

// A lease loses its label, or all that says that it is a gateway's, so that no list shows
// it any more. Its gateway goes on renewing until it notices, and is asked for fences all
// the time.
func TestALeaseWithoutItsLabelIsTakenUpAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		address, mute bool
		revocations   int
	}{
		"its label":         {},
		"label and address": {address: true, revocations: 1},
		"both, and the controller writes nothing": {address: true, mute: true},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulation) {
				g := s.run("g1", "a")
				s.setMute(tc.mute)
				l := s.api.get("g1")
				delete(l.Labels, v1alpha1.LabelGateway)
				if tc.address {
					delete(l.Annotations, v1alpha1.AnnotationGatewayAddress)
				}
				s.api.write(l)
				s.wantUnanswered(s.fence(7), "", "it is asked, and answers")
				if g.fences.asked() != 1 || s.revoked("g1") != tc.revocations {
					t.Errorf("it was asked %d times and its holder overwritten %d times", g.fences.asked(), s.revoked("g1"))
				}
				after(DefaultRenewEvery + time.Second)
				if l := s.api.get("g1"); holderOf(l) != "a/2" || l.Labels[v1alpha1.LabelGateway] == "" {
					t.Errorf("the lease says %s, %v", holderOf(l), l.Labels)
				}
				g.wantHeld(t, true, "taken up again")
				wantNames(t, s.directory, "g1=a/2", "taken up again")
			})
		})
	}
}

// A gateway whose lease says something else than it counts on takes it up anew.
func TestRenewalLooksAtWhatTheLeaseSays(t *testing.T) {
	for name, change := range map[string]func(*coordinationv1.Lease){
		"label":    func(l *coordinationv1.Lease) { l.Labels = nil },
		"address":  func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.AnnotationGatewayAddress] = "unix:///other" },
		"pod":      func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.AnnotationGatewayPod] = "other" },
		"duration": func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To(int32(5)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				api := newFakeAPI()
				g := newMember(t, api, nil)
				g.start(t)
				right := api.get("gw")
				wrong := api.get("gw")
				change(wrong)
				api.write(wrong)
				after(DefaultRenewEvery + time.Second)
				l := api.get("gw")
				if holderOf(l) != "a/2" || g.counts(l) != nil || l.Labels[v1alpha1.LabelGateway] != right.Labels[v1alpha1.LabelGateway] {
					t.Errorf("the lease says %s, %v %v", holderOf(l), l.Labels, l.Annotations)
				}
				g.wantHeld(t, true, "taken up anew")
				g.stop(t)
			})
		})
	}
}

// rewind makes the API server go back to leases of before, as a restore of etcd does.
func (f *fakeAPI) rewind(rv int, leases ...*coordinationv1.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rv, f.leases = rv, map[string]*coordinationv1.Lease{}
	for _, l := range leases {
		f.leases[l.Name] = l
	}
}

// An API server that goes back to an older state is noticed: a gateway that renews there
// drops its routes and lists anew before it serves on, one of before that is there again
// counts its time, and the directory goes on.
func TestDirectorySurvivesARestore(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.run("g1", "a")
		early, rv := s.api.get("g1"), s.api.version()
		after(time.Hour)
		stopped := s.run("g2", "b")
		if err := stopped.Leave(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		stopped.cancel = nil
		after(time.Minute)
		if s.api.version() <= rv+10 {
			t.Fatal("nothing to go back from")
		}
		s.api.rewind(rv, early)
		after(2 * DefaultRefreshEvery)
		g.wantHeld(t, true, "it has joined again")
		if did := strings.Join(g.log.all(), " "); did != "join lost join" {
			t.Errorf("it did %q: it must list anew, for its watches are silent", did)
		}
		s.wantUnanswered(s.fence(7), "", "it acknowledges")
		after(2 * leaseAndGrace)
		if h := holderOf(s.api.get("g1")); h != "a/2" {
			t.Errorf("its holder is %s: renewals were not seen", h)
		}
		wantNames(t, s.directory, "g1=a/2", "long after")
		after(time.Minute)
		s.wantUnanswered(s.fence(8), "", "long after")
	})
}

// What was over before a restore may be there again, and its gateway too.
func TestAnEndedLeaseThatARestoreBringsBackCounts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("gw", "a/1", 600, time.Now()))
		early, rv := api.get("gw"), api.version()
		d := newDirectory(t, api)
		wantNames(t, d, "gw=a/1", "first seen")
		after(leaseAndGrace)
		wantNames(t, d, "", "over")
		if err := api.Delete(t.Context(), "gw", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		wantNames(t, d, "", "deleted")
		api.rewind(rv, early)
		wantNames(t, d, "gw=a/1", "brought back")
		after(leaseAndGrace)
		wantNames(t, d, "", "over again")
	})
}

func (f *fakeAPI) version() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rv
}
