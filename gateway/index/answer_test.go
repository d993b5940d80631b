package index

import (
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routing"
)

func TestDecide(t *testing.T) {
	deleted := metav1.NewTime(time.Unix(1, 0))
	goodPod := claimedPod("p", "s", "c", "10.0.0.1", 7)
	goodSandbox := boundSandbox("s", "c", "p")
	for name, tc := range map[string]struct {
		sandbox func(*v1alpha1.Sandbox)
		pod     func(*corev1.Pod)
		want    routing.State
	}{
		"good":                       {nil, nil, routing.Running},
		"ended":                      {func(s *v1alpha1.Sandbox) { s.Spec.End = &v1alpha1.End{} }, nil, routing.Ended},
		"sandbox being deleted":      {func(s *v1alpha1.Sandbox) { s.DeletionTimestamp = &deleted }, nil, routing.Ended},
		"unbound":                    {func(s *v1alpha1.Sandbox) { s.Spec.Binding = nil }, nil, routing.NoPod},
		"bound to another claim":     {func(s *v1alpha1.Sandbox) { s.Spec.Binding.ClaimID = "d" }, nil, routing.Starting},
		"bound to another pod name":  {func(s *v1alpha1.Sandbox) { s.Spec.Binding.PodName = "q" }, nil, routing.Starting},
		"bound to another UID":       {func(s *v1alpha1.Sandbox) { s.Spec.Binding.PodUID = "uid-q" }, nil, routing.Starting},
		"of another namespace":       {func(s *v1alpha1.Sandbox) { s.Spec.Namespace = "other" }, nil, routing.Starting},
		"pod names another sandbox":  {nil, func(p *corev1.Pod) { p.Labels[v1alpha1.LabelSandboxID] = "t" }, routing.Starting},
		"pod has another claim":      {nil, func(p *corev1.Pod) { p.Annotations[v1alpha1.AnnotationClaim] = "d" }, routing.Starting},
		"pod not claimed":            {nil, func(p *corev1.Pod) { delete(p.Annotations, v1alpha1.AnnotationClaim) }, routing.Starting},
		"pod being deleted":          {nil, func(p *corev1.Pod) { p.DeletionTimestamp = &deleted }, routing.Starting},
		"pod over, as evicted":       {nil, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, routing.Starting},
		"pod over, as done":          {nil, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, routing.Starting},
		"pod without address":        {nil, func(p *corev1.Pod) { p.Status.PodIP = "" }, routing.Starting},
		"pod changed its address":    {nil, func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.2" }, routing.Starting},
		"pod with no fenced address": {nil, func(p *corev1.Pod) { delete(p.Annotations, v1alpha1.AnnotationAddress) }, routing.Starting},
		"pod with a broken address": {nil, func(p *corev1.Pod) {
			p.Status.PodIP, p.Annotations[v1alpha1.AnnotationAddress] = "x", "x"
		}, routing.Starting},
		"pod idle":     {nil, phaseOf(v1alpha1.PodIdle), routing.Starting},
		"pod starting": {nil, phaseOf(v1alpha1.PodStarting), routing.Starting},
		"pod stopping": {nil, phaseOf(v1alpha1.PodStopping), routing.Starting},
		"pod failed":   {nil, phaseOf(v1alpha1.PodFailed), routing.Starting},
		"pod warming":  {nil, phaseOf(v1alpha1.PodWarming), routing.Starting},
		"no phase":     {nil, phaseOf(""), routing.Starting},
		"paused":       {func(s *v1alpha1.Sandbox) { s.Spec.Paused = true }, nil, routing.Paused},
		"paused, and its pod is gone": {
			func(s *v1alpha1.Sandbox) { s.Spec.Paused = true }, phaseOf(v1alpha1.PodStopping), routing.Paused,
		},
		"paused, and ended":                {func(s *v1alpha1.Sandbox) { s.Spec.Paused, s.Spec.End = true, &v1alpha1.End{} }, nil, routing.Ended},
		"paused once, nothing known since": {func(s *v1alpha1.Sandbox) { s.Spec.PauseMode = v1alpha1.PauseFreeze }, nil, routing.MaybeFrozen},
		"resumed":                          {resumed(3, 3, v1alpha1.ReasonResumed), nil, routing.Running},
		"resumed, and again since":         {resumed(4, 3, v1alpha1.ReasonResumed), nil, routing.MaybeFrozen},
		"resumed, without its files": {func(s *v1alpha1.Sandbox) {
			resumed(3, 3, v1alpha1.ReasonResumed)(s)
			s.Spec.Restore = &v1alpha1.Restore{Checkpoint: "c"}
		}, nil, routing.MaybeFrozen},
		"hibernating": {func(s *v1alpha1.Sandbox) {
			s.Spec.Paused, s.Spec.Binding, s.Spec.Restore = true, nil, &v1alpha1.Restore{Checkpoint: "c"}
		}, nil, routing.Paused},
		"resumed, and its pod was lost": {func(s *v1alpha1.Sandbox) {
			s.Spec.PauseMode, s.Spec.Binding, s.Spec.Restore = v1alpha1.PauseHibernate, nil, &v1alpha1.Restore{Checkpoint: "c"}
		}, nil, routing.Paused},
		"still frozen":  {resumed(3, 3, v1alpha1.ReasonFrozen), nil, routing.MaybeFrozen},
		"being resumed": {resumed(3, 3, v1alpha1.ReasonResuming), nil, routing.MaybeFrozen},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := goodSandbox.DeepCopy(), goodPod.DeepCopy()
			if tc.sandbox != nil {
				tc.sandbox(s)
			}
			if tc.pod != nil {
				tc.pod(p)
			}
			record, err := newPod(p)
			must(t, err)
			a := decide(s.Name, newSandbox(s), record)
			if a.State != tc.want || (a.Route != nil) != (tc.want == routing.Running) {
				t.Fatalf("%v, route %+v; want %v", a.State, a.Route, tc.want)
			}
			if a.UID != s.UID || a.Namespace != s.Spec.Namespace || a.Pool != "pool" || a.Team != "team" {
				t.Errorf("answer %+v does not describe the sandbox", a)
			}
		})
	}
	record, err := newPod(goodPod)
	must(t, err)
	private := boundSandbox("s", "c", "p")
	private.UID, private.Spec.Network.Private = "uid-s", true
	r := decide("s", newSandbox(private), record).Route
	if r.SandboxID != "s" || r.InPool().Namespace != "ns" || r.ClaimID != "c" || r.PodUID != "uid-p" ||
		r.Addr.String() != "10.0.0.1" || r.PodRV != 7 || !r.Private || r.TokenUID == nil || *r.TokenUID != private.UID || r.Use != nil {
		t.Errorf("route %+v", r)
	}
	if a := decide("s", nil, nil); a.State != routing.Unknown {
		t.Errorf("no sandbox: %v", a.State)
	}
	if a := decide("s", newSandbox(goodSandbox), nil); a.State != routing.Starting || a.PodUID != "uid-p" {
		t.Errorf("no pod: %+v", a)
	}
}

// resumed is a sandbox that was paused once, of which the status of an order says something.
func resumed(order, of int64, state v1alpha1.PauseState) func(*v1alpha1.Sandbox) {
	return func(s *v1alpha1.Sandbox) {
		s.Spec.PauseMode, s.Spec.PauseOrder = v1alpha1.PauseFreeze, order
		s.Status.Pause = &v1alpha1.PauseStatus{Order: of, State: state}
	}
}

func phaseOf(p v1alpha1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[v1alpha1.LabelPhase] = string(p) }
}

// The records must agree with the typed predicates of the API package.
func TestDecideAgreesWithTheTypes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(values ...string) string { return values[rng.IntN(len(values))] }
	running := 0
	for range 10_000 {
		p := claimedPod(pick("p", "p", "q"), pick("s", "s", "t", ""), pick("c", "c", "d", ""), pick("10.0.0.1", "fd00::1"), 7)
		p.Namespace = pick("ns", "ns", "ns", "other")
		p.UID = "uid-p"
		if rng.IntN(5) == 0 {
			p.Status.PodIP = pick("", "10.0.0.9")
		}
		p.Labels[v1alpha1.LabelPhase] = pick("running", "running", "stopping")
		s := boundSandbox(pick("s", "s", "t"), pick("c", "c", "d", ""), "p")
		p.Status.Phase = corev1.PodPhase(pick("Running", "Running", "Running", "", "Unknown", "Failed", "Succeeded"))
		record, err := newPod(p)
		must(t, err)
		got := decide(s.Name, newSandbox(s), record).State == routing.Running
		want := v1alpha1.Backs(p, s) && v1alpha1.RoutableAddress(p) != "" && v1alpha1.PhaseOf(p) == v1alpha1.PodRunning && !v1alpha1.Finished(p)
		// An empty claim or ID never counts, whatever names it.
		want = want && s.Spec.Binding.ClaimID != ""
		if got != want {
			t.Fatalf("running %v, the types say %v:\npod %+v\nsandbox %+v", got, want, p.ObjectMeta, s.Spec)
		}
		if got {
			running++
		}
	}
	if running < 100 {
		t.Errorf("only %d pairs fit: the test tests nothing", running)
	}
}

func TestParseRV(t *testing.T) {
	for in, want := range map[string]uint64{"1": 1, "18446744073709551615": 1<<64 - 1,
		"": 0, "0": 0, "01": 0, "-1": 0, "x": 0, "1x": 0, "18446744073709551616": 0} {
		if got, err := parseRV(in); got != want || (err != nil) != (want == 0) {
			t.Errorf("parseRV(%q) = %d, %v", in, got, err)
		}
	}
	p := claimedPod("p", "s", "c", "10.0.0.1", 1)
	p.ResourceVersion = "abc"
	if _, err := newPod(p); err == nil {
		t.Error("a pod without a comparable resourceVersion makes a record")
	}
}

func TestStateNames(t *testing.T) {
	if routing.Running.String() != "running" || routing.Unknown.String() != "unknown" || routing.State(9).String() != "invalid" {
		t.Error("wrong state names")
	}
}
