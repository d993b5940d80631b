package v1alpha1

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sandboxd freezes its own container alone, and what a probe would end is not frozen.
func TestFreezable(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*corev1.PodSpec)
		want   bool
	}{
		"sandboxd alone":    {func(*corev1.PodSpec) {}, true},
		"another port":      {func(s *corev1.PodSpec) { s.Containers[0].Ports[0].ContainerPort = 80 }, false},
		"two containers":    {func(s *corev1.PodSpec) { s.Containers = append(s.Containers, corev1.Container{}) }, false},
		"a liveness probe":  {func(s *corev1.PodSpec) { s.Containers[0].LivenessProbe = &corev1.Probe{} }, false},
		"shared processes":  {func(s *corev1.PodSpec) { s.ShareProcessNamespace = new(true) }, false},
		"the host's":        {func(s *corev1.PodSpec) { s.HostPID = true }, false},
		"a home of its own": {func(s *corev1.PodSpec) { s.Containers[0].Args = []string{"--sudo", "--home=."} }, false},
		"other arguments":   {func(s *corev1.PodSpec) { s.Containers[0].Args = []string{"--sudo", "--homely"} }, true},
		"an init container": {func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{}}
		}, true},
		"a sidecar": {func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
		}, false},
	} {
		spec := &corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: SandboxdPort}}}}}
		c.change(spec)
		if got := Freezable(spec); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// What a pool leaves out of its pauses has a default; what a sandbox says counts first.
func TestPoolPause(t *testing.T) {
	hour, never, none := metav1.Duration{Duration: time.Hour}, metav1.Duration{}, int32(0)
	most := int32(7)
	for what, c := range map[string]struct {
		pool    *SandboxPoolSpec
		sandbox *metav1.Duration
		most    int
		limited bool
		lasts   time.Duration
		freezes bool
	}{
		"no pool":       {nil, nil, 0, false, DefaultPausedFor, true},
		"nothing said":  {&SandboxPoolSpec{}, nil, 0, false, DefaultPausedFor, true},
		"maxPods":       {&SandboxPoolSpec{MaxPods: 10}, nil, 5, true, DefaultPausedFor, true},
		"one pod":       {&SandboxPoolSpec{MaxPods: 1}, nil, 1, true, DefaultPausedFor, true},
		"maxPaused":     {&SandboxPoolSpec{MaxPods: 10, Pause: &PoolPause{MaxPaused: &most}}, nil, 7, true, DefaultPausedFor, true},
		"none":          {&SandboxPoolSpec{Pause: &PoolPause{MaxPaused: &none}}, nil, 0, true, DefaultPausedFor, true},
		"pausedFor":     {&SandboxPoolSpec{Pause: &PoolPause{PausedFor: &hour}}, nil, 0, false, time.Hour, true},
		"the sandbox's": {&SandboxPoolSpec{Pause: &PoolPause{PausedFor: &hour}}, &never, 0, false, 0, true},
		"another mode":  {&SandboxPoolSpec{Pause: &PoolPause{Modes: []PauseMode{"Other"}}}, nil, 0, false, DefaultPausedFor, false},
	} {
		s := &Sandbox{}
		s.Spec.Timeouts.PausedFor = c.sandbox
		most, limited := MaxPaused(c.pool)
		if got := PausedFor(s, c.pool); got != c.lasts || limited != c.limited || limited && most != c.most || AllowsPause(c.pool, PauseFreeze) != c.freezes {
			t.Errorf("%s: for %s, %d, %v, frozen: %v", what, got, most, limited, AllowsPause(c.pool, PauseFreeze))
		}
	}
}

// A timeout that pauses sandboxes hibernates them where their pool does not let them freeze.
func TestPauseDefaults(t *testing.T) {
	for what, c := range map[string]struct {
		pool *PoolPause
		want SandboxTimeouts
	}{
		"nothing said":    {nil, SandboxTimeouts{}},
		"modes alone":     {&PoolPause{Modes: []PauseMode{PauseHibernate}}, SandboxTimeouts{}},
		"killed":          {&PoolPause{Modes: []PauseMode{PauseHibernate}, OnTimeout: TimeoutKill}, SandboxTimeouts{OnTimeout: TimeoutKill}},
		"frozen":          {&PoolPause{OnTimeout: TimeoutPause, AutoResume: AutoResumeAlways}, SandboxTimeouts{OnTimeout: TimeoutPause, AutoResume: AutoResumeAlways}},
		"both modes":      {&PoolPause{Modes: []PauseMode{PauseHibernate, PauseFreeze}, OnTimeout: TimeoutPause}, SandboxTimeouts{OnTimeout: TimeoutPause}},
		"hibernates only": {&PoolPause{Modes: []PauseMode{PauseHibernate}, OnTimeout: TimeoutPause}, SandboxTimeouts{OnTimeout: TimeoutPause, OnTimeoutMode: PauseHibernate}},
	} {
		var got SandboxTimeouts
		PauseDefaults(&got, &SandboxPoolSpec{Pause: c.pool})
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

// What has no memory is resumed by no request that counts on it, and may rest for ever.
func TestHibernating(t *testing.T) {
	hour := &metav1.Duration{Duration: time.Hour}
	for what, c := range map[string]struct {
		mode    PauseMode
		resume  AutoResume
		pool    *PoolPause
		resumes bool
		lasts   time.Duration
	}{
		"with memory, frozen":      {PauseFreeze, AutoResumeWithMemory, nil, true, DefaultPausedFor},
		"with memory, hibernating": {PauseHibernate, AutoResumeWithMemory, nil, false, 0},
		"always, frozen":           {PauseFreeze, AutoResumeAlways, nil, true, DefaultPausedFor},
		"always, hibernating":      {PauseHibernate, AutoResumeAlways, &PoolPause{PausedFor: hour}, true, time.Hour},
		"never, hibernating":       {PauseHibernate, AutoResumeNever, nil, false, 0},
	} {
		s := &Sandbox{}
		s.Spec.Paused, s.Spec.PauseMode, s.Spec.Timeouts.AutoResume = true, c.mode, c.resume
		if s.Spec.Binding = (&Binding{}); c.mode == PauseHibernate {
			s.Spec.Binding, s.Spec.Restore = nil, &Restore{Checkpoint: "c"}
		}
		if got, lasts := ResumedByRequests(s), PausedFor(s, &SandboxPoolSpec{Pause: c.pool}); got != c.resumes || lasts != c.lasts {
			t.Errorf("%s: requests resume it: %v; it lasts for %s", what, got, lasts)
		}
		if Hibernated(s) != (c.mode == PauseHibernate) || Restoring(s) {
			t.Errorf("%s: it hibernates: %v, is restored: %v", what, Hibernated(s), Restoring(s))
		}
		if rest := s.Spec.Restore; rest != nil {
			s.Spec.Binding, s.Spec.Restore = &Binding{}, nil
			if got := ResumedByRequests(s); got != c.resumes || !Saving(s) {
				t.Errorf("%s, its files are being kept: requests resume it: %v", what, got)
			}
			s.Status.Pause = &PauseStatus{State: ReasonSaveFailed}
			if got := ResumedByRequests(s); got != ResumesFrozen(c.resume) || Saving(s) {
				t.Errorf("%s, keeping its files fails: requests resume it: %v", what, got)
			}
			s.Status.Pause = nil
			s.Spec.Binding, s.Spec.Restore = nil, rest
		}
		if s.Spec.Paused = false; Restoring(s) != (c.mode == PauseHibernate) || Hibernated(s) {
			t.Errorf("%s, resumed: it hibernates: %v, is restored: %v", what, Hibernated(s), Restoring(s))
		}
	}
}

// A sandbox runs for as long as it was asked for, and its end is one that an API server
// keeps as it is.
func TestEndAfter(t *testing.T) {
	const d = 5 * time.Minute
	midnight := time.Date(2026, 1, 2, 0, 0, 0, 0, time.FixedZone("", 3600))
	for _, part := range []time.Duration{0, 1, time.Second / 2, time.Second - 1} {
		now := midnight.Add(part)
		end := EndAfter(now, d)
		if more := end.Sub(now) - d; more <= 0 || more > time.Second || end.Nanosecond() != 0 || end.Location() != time.UTC {
			t.Errorf("%v after %v: %v", d, now, end)
		}
	}
}

// What a Sandbox that was made by hand asks for has the same bounds as what the REST API
// allows.
func TestAutoLifetime(t *testing.T) {
	for lifetime, want := range map[time.Duration]time.Duration{
		time.Second: 5 * time.Minute, 7 * time.Minute: 7 * time.Minute, MaxLifetime: MaxLifetime, 1000 * time.Hour: MaxLifetime,
	} {
		s := &Sandbox{}
		s.Spec.Timeouts.Lifetime = &metav1.Duration{Duration: lifetime}
		if got := AutoLifetime(s); got != want {
			t.Errorf("a lifetime of %v gives %v, want %v", lifetime, got, want)
		}
	}
	if got := AutoLifetime(&Sandbox{}); got != 5*time.Minute {
		t.Errorf("without a lifetime: %v", got)
	}
}
