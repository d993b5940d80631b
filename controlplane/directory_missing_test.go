package controlplane

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlane/sandlane/test/bubble"
	"github.com/sandlane/sandlane/test/certs"
)

// A lease that was deleted by hand is there again when the list that misses it returns, so
// that the next controller asks its gateway too, for lease and grace.
func TestADeletedLeaseIsKnownToTheNextController(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("gw", "a/1", 600, time.Now()))
		d := newDirectory(t, api)
		wantNames(t, d, "gw=a/1", "first")
		api.drop("gw")
		wantNames(t, d, "gw=revoked:a/1", "deleted")
		next := newDirectory(t, api)
		wantNames(t, next, "gw=revoked:a/1", "by the next controller")
		after(leaseAndGrace - time.Millisecond)
		wantNames(t, next, "gw=revoked:a/1", "just before its end")
		after(time.Millisecond)
		wantNames(t, next, "", "at its end")
	})
}

// A deleted lease counts also while it cannot be written back: for its time and grace.
func TestADeletedLeaseCountsWhileItIsNotWrittenBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("gw", "a/1", 600, time.Now()))
		d := newDirectory(t, api)
		wantNames(t, d, "gw=a/1", "first")
		api.drop("gw")
		api.mu.Lock()
		api.before = func(verb, _ string) error {
			if verb == "create" {
				return errors.New("the API server refuses writes")
			}
			return nil
		}
		api.mu.Unlock()
		wantNames(t, d, "gw=a/1(gone)", "deleted")
		after(leaseAndGrace - time.Millisecond)
		wantNames(t, d, "gw=a/1(gone)", "just before its end")
		after(time.Millisecond)
		wantNames(t, d, "", "at its end")
	})
}

// A backup of etcd may lack a lease: it is written back when the API server is seen to go
// back, with and without a raised revision.
func TestALeaseThatABackupLacksIsWrittenBack(t *testing.T) {
	for name, raise := range map[string]int{"as it was": 0, "raised": 1000} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				api := newFakeAPI()
				rv := api.version()
				api.write(lease("gw", "a/1", 600, time.Now()))
				wantNames(t, newDirectory(t, api), "gw=a/1", "first")
				d := newDirectory(t, api)
				stop := d.watch(t)
				api.rewind(rv + raise)
				if err := d.WriteDown(t.Context()); err != nil {
					t.Fatal(err)
				}
				stop()
				wantNames(t, newDirectory(t, api), "gw=revoked:a/1", "the next controller")
			})
		})
	}
}

// A backup that is restored with a raised revision brings an ended lease back, under its
// UID, and it counts; one that is shown in an older state starts all anew.
func TestARaisedRestoreBringsLeasesBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("gw", "a/1", 600, time.Now()))
		api.write(lease("other", "b/1", 600, time.Now()))
		gw, other := api.get("gw"), api.get("other")
		d := newDirectory(t, api)
		wantNames(t, d, "gw=a/1 other=b/1", "first")
		after(leaseAndGrace)
		api.write(lease("other", "b/2", 600, time.Now()))
		wantNames(t, d, "other=b/2", "one is over")
		d.refresh(t.Context())
		api.rewind(api.version()+1000, gw, other)
		wantNames(t, d, "gw=a/1 other=b/1", "brought back")
		after(leaseAndGrace)
		wantNames(t, d, "", "over again")
	})
}

// A controller that starts finds a gateway by its pod, whose lease vanished while no
// controller ran: it waits for its answer, or for the longest lease.
func TestAPodWithoutALeaseIsAsked(t *testing.T) {
	ca := certs.New(t)
	server := ServerOptions{TLS: credentialsOf(t, ca, ca, gatewayLeaf, ControllerIdentity, nil)}
	client := ClientOptions{TLS: credentialsOf(t, ca, ca, controllerLeaf, GatewayIdentity, nil)}
	simulateWith(t, server, client, func(t *testing.T, s *simulation) {
		s.pods.set(nil, controlPod("g1", "uid", "10.0.0.1"))
		s.listen("10.0.0.1:9443", "a") // as the pod of g1 does
		s.cutOff("10.0.0.1:9443", true)
		s.client.o.Directory = s.newDirectory()
		s.wantUnanswered(s.fence(7), "g1-uid", "its pod runs")
		s.cutOff("10.0.0.1:9443", false)
		s.wantUnanswered(s.fence(7), "", "it answers")
		s.cutOff("10.0.0.1:9443", true)
		after(leaseAndGrace)
		s.wantUnanswered(s.fence(8), "", "the longest lease is over")
	})
}

// A clean stop that the watch shows after a list is no lease to write back.
func TestACleanStopSeenLateLeavesNoLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("gw", "a/1", 600, time.Now()))
		d := newDirectory(t, api)
		wantNames(t, d, "gw=a/1", "first")
		api.write(lease("gw", "left:a/1", 600, time.Now()))
		last := api.get("gw")
		api.drop("gw")
		wantNames(t, d, "gw=revoked:a/1", "listed without the watch")
		d.remove(last)
		wantNames(t, d, "", "the watch shows why")
		d.refresh(t.Context())
		if l, err := api.Get(t.Context(), "gw", metav1.GetOptions{}); err == nil {
			t.Errorf("its lease is there again: %v", l)
		}
	})
}

// The same, where the watch shows the clean stop just before the lease is written back.
func TestACleanStopDuringAWriteBackLeavesNoLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("gw", "a/1", 600, time.Now()))
		d := newDirectory(t, api)
		wantNames(t, d, "gw=a/1", "first")
		api.write(lease("gw", "left:a/1", 600, time.Now()))
		last := api.get("gw")
		api.drop("gw")
		api.mu.Lock()
		api.before = func(verb, _ string) error {
			if verb == "create" {
				d.remove(last)
			}
			return nil
		}
		api.mu.Unlock()
		wantNames(t, d, "", "the watch shows why")
		d.refresh(t.Context())
		if l, err := api.Get(t.Context(), "gw", metav1.GetOptions{}); err == nil {
			t.Errorf("its lease is there again: %v", l)
		}
	})
}

// For a gateway that is known by its pod alone no lease is written, after a restore either:
// it may never have had one.
func TestNoLeaseIsWrittenForAPod(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		s.pods.set(nil, controlPod("g1", "uid", "10.0.0.1"))
		d := s.newDirectory()
		after(time.Second)
		s.api.write(lease("g2", "b/1", 600, time.Now()))
		rv := s.api.version()
		s.api.write(lease("g2", "b/1", 600, time.Now()))
		wantNames(t, d, "g1-uid=revoked:/0(gone) g2=b/1", "first")
		s.api.rewind(rv)
		wantNames(t, d, "g1-uid=revoked:/0(gone) g2=revoked:b/1", "after a restore")
		after(leaseAndGrace)
		if _, err := d.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l := s.api.get("g1-uid"); l != nil {
			t.Errorf("a lease was written: %v", l)
		}
	})
}

// A controller that starts does not wait for a gateway whose pod was never ready, as after an
// upgrade with a wrong flag; one that may have been ready is waited for.
func TestAPodThatWasNeverReadyIsNotAsked(t *testing.T) {
	crashing := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	ready := func(started, since time.Duration, status corev1.ConditionStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			p.Status.StartTime = ptr.To(metav1.NewTime(begun.Add(started)))
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.ContainersReady, Status: status, LastTransitionTime: metav1.NewTime(begun.Add(since)),
			}}
		}
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		asked  bool
	}{
		"never ready":          {ready(0, 0, corev1.ConditionFalse), false},
		"ready":                {ready(0, 0, corev1.ConditionTrue), true},
		"ready before":         {ready(0, time.Second, corev1.ConditionFalse), true},
		"by a clock set back":  {ready(time.Hour, 0, corev1.ConditionFalse), true},
		"not known":            {ready(0, 0, corev1.ConditionUnknown), true},
		"no condition":         {func(*corev1.Pod) {}, true},
		"its gateway is ready": {func(p *corev1.Pod) { ready(0, 0, corev1.ConditionFalse)(p); p.Status.ContainerStatuses[0].Ready = true }, true},
		"its Envoy alone is":   {func(p *corev1.Pod) { ready(0, 0, corev1.ConditionFalse)(p); p.Status.ContainerStatuses[1].Ready = true }, false},
	} {
		simulate(t, func(t *testing.T, s *simulation) {
			p := controlPod("g1", "uid", "10.0.0.1")
			p.Status.ContainerStatuses[0].State, p.Status.ContainerStatuses[0].RestartCount = crashing, 5
			tc.change(p)
			s.pods.set(nil, p)
			want := ""
			if tc.asked {
				want = "g1-uid=revoked:/0(gone)"
			}
			wantNames(t, s.newDirectory(), want, name)
		})
	}
}
