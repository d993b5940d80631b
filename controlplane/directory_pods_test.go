package controlplane

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/bubble"
	"github.com/sandlane/sandlane/test/kubetest"
)

// gatewayPod is a pod with a gateway and an Envoy that run.
func gatewayPod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "gw", UID: "uid"},
		Spec: corev1.PodSpec{
			NodeName: "node", TerminationGracePeriodSeconds: ptr.To(int64(30)),
			InitContainers: []corev1.Container{
				{Name: "first", Image: "i"},
				{Name: "sidecar", Image: "i", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			},
			Containers: []corev1.Container{{Name: "gateway", Image: "i"}, {Name: "envoy", Image: "i"}},
		},
	}
	p.Status.Phase = corev1.PodRunning
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "sidecar", State: running}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "gateway", State: running}, {Name: "envoy", State: running}}
	for _, f := range change {
		f(p)
	}
	return p
}

func terminated(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
			for i := range list {
				for _, n := range names {
					if list[i].Name == n {
						list[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
					}
				}
			}
		}
	}
}

func podPhase(to corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = to }
}

func beingDeleted(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Now()) }

func withDebugger(p *corev1.Pod) {
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger"}}}
	p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "debugger", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

var all = terminated("sidecar", "gateway", "envoy")

func TestPodOver(t *testing.T) {
	failed, succeeded := podPhase(corev1.PodFailed), podPhase(corev1.PodSucceeded)
	for name, tt := range map[string]struct {
		change []func(*corev1.Pod)
		want   bool
	}{
		"runs":                                 {},
		"evicted":                              {[]func(*corev1.Pod){failed, all}, true},
		"succeeded":                            {[]func(*corev1.Pod){succeeded, all}, true},
		"deleted and stopped":                  {[]func(*corev1.Pod){beingDeleted, all}, true},
		"containers between two runs":          {[]func(*corev1.Pod){all}, false},
		"deleted, still stopping":              {[]func(*corev1.Pod){beingDeleted, terminated("sidecar", "gateway")}, false},
		"deleted, a sidecar still stopping":    {[]func(*corev1.Pod){beingDeleted, terminated("gateway", "envoy")}, false},
		"failed by another than the kubelet":   {[]func(*corev1.Pod){failed}, false},
		"deleted with no grace":                {[]func(*corev1.Pod){beingDeleted}, false},
		"failed, the kubelet says little":      {[]func(*corev1.Pod){failed, func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }}, false},
		"deleted, one container never started": {[]func(*corev1.Pod){beingDeleted, all, func(p *corev1.Pod) { p.Status.ContainerStatuses[1].State = corev1.ContainerState{} }}, false},
		"deleted, a debugger runs":             {[]func(*corev1.Pod){beingDeleted, withDebugger, all}, false},
		"deleted, a debugger has ended":        {[]func(*corev1.Pod){beingDeleted, withDebugger, all, terminated("debugger")}, true},
	} {
		if got := podOver(gatewayPod(tt.change...)); got != tt.want {
			t.Errorf("%s: over is %v", name, got)
		}
	}
}

// A gateway whose pod has ended is waited for no longer; one of which that is not
// sure, or which names no pod, for its lease.
func TestDirectoryEndsALeaseWithItsPod(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		d := newDirectory(t, api)
		for name, uid := range map[string]string{"ended": "a", "other": "b", "podless": ""} {
			l := lease(name, name+"/1", 600, time.Now())
			if uid != "" {
				l.Annotations = map[string]string{v1alpha1.AnnotationGatewayPod: uid}
			}
			api.write(l)
		}
		stop := d.watch(t)
		defer stop()
		const everyone = "ended=ended/1 other=other/1 podless=podless/1"
		wantNames(t, d, everyone, "all run")
		named := func(uid types.UID) func(*corev1.Pod) { return func(p *corev1.Pod) { p.UID = uid } }
		d.seePod(gatewayPod(named("a"), beingDeleted))
		d.seePod(gatewayPod(named(""), beingDeleted, all))
		wantNames(t, d, everyone, "one is being deleted")
		if !d.LastLoss().IsZero() {
			t.Error("a loss before an end")
		}
		d.seePod(gatewayPod(named("a"), beingDeleted, all))
		wantNames(t, d, "other=other/1 podless=podless/1", "its pod has ended")
		if d.LastLoss() != time.Now() {
			t.Error("no loss: what it knew of use is gone")
		}
		// A renewal that was on its way when it died.
		l := api.get("ended")
		l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now().Add(time.Second)))
		api.write(l)
		wantNames(t, d, "other=other/1 podless=podless/1", "a late renewal")
		after(DefaultRefreshEvery + time.Second)
		if api.get("ended") != nil || api.get("other") == nil || api.get("podless") == nil {
			t.Error("want the lease of the ended one deleted, and no other")
		}
		after(2 * rememberOver)
		if len(d.endedPods) != 0 {
			t.Errorf("%d ended pods are kept for ever", len(d.endedPods))
		}
	})
}

func TestFenceSettledByTheEndOfThePod(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.listen("g1", "a")
		g.o.PodUID = "uid"
		g.start(t)
		after(time.Second)
		g.kill()
		s.wantUnanswered(s.fence(7), "g1", "dead, and nobody knows")
		s.directory.seePod(gatewayPod(beingDeleted))
		s.wantUnanswered(s.fence(7), "g1", "deleted with no grace")
		s.directory.seePod(gatewayPod(beingDeleted, all))
		s.wantUnanswered(s.fence(7), "", "its pod has ended")
	})
}

// On a real API server: the last that is seen of a pod counts, not that it is gone.
func TestRealPodsOfGateways(t *testing.T) {
	ns := kubetest.Namespace(t)
	c, err := corev1client.NewForConfig(kubetest.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	pods, leases := c.Pods(ns), realLeasesIn(t, ns)
	d, err := NewDirectory(DirectoryOptions{Leases: leases, Pods: pods, RefreshEvery: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer startReal(t, d)()
	for _, name := range []string{"stopped", "forced"} {
		p := gatewayPod(func(p *corev1.Pod) { p.Name, p.UID = name, "" })
		status := p.Status
		if p, err = pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		p.Status = status
		if p, err = pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		m := newMember(t, leases, func(o *MembershipOptions) { o.Name, o.Instance, o.PodUID = name, name, string(p.UID) })
		kill := startReal(t, m)
		eventually(t, name+" to hold its lease", m.Held)
		kill()
	}
	names := func() string { return d.names(t) }
	eventually(t, "both to be known", func() bool { return names() == "forced=forced/1 stopped=stopped/1" })
	for name, grace := range map[string]int64{"stopped": 30, "forced": 0} {
		if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
			t.Fatal(err)
		}
	}
	// What a kubelet does when the containers have stopped.
	p, err := pods.Get(t.Context(), "stopped", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all(p)
	if _, err := pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(t.Context(), "stopped", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stopped one to be over", func() bool { return names() == "forced=forced/1" })
	// Its pod went first, and its lease counts.
	if _, err := pods.Get(t.Context(), "forced", metav1.GetOptions{}); err == nil {
		t.Error("the pod that was deleted with no grace is there")
	}
	if names() != "forced=forced/1" {
		t.Errorf("gateways are %q: the one that was deleted with no grace may still route", names())
	}
}
