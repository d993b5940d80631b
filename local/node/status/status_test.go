package status

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// isReady is the condition Ready.
func isReady(st corev1.PodStatus) bool {
	for _, c := range st.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func TestBuildStatus(t *testing.T) {
	running := corev1.ContainerStatus{Name: "a", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	unready := running
	unready.Ready = false
	waiting := corev1.ContainerStatus{Name: "b", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}
	restarting := waiting
	restarting.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
	over := func(code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}
	}
	gate := []corev1.PodReadinessGate{{ConditionType: "x"}}
	for _, c := range []struct {
		what     string
		in       []corev1.ContainerStatus
		gates    []corev1.PodReadinessGate
		finished bool
		phase    corev1.PodPhase
		ready    bool
	}{
		{"all run", []corev1.ContainerStatus{running, running}, nil, false, corev1.PodRunning, true},
		{"one is not ready", []corev1.ContainerStatus{running, unready}, nil, false, corev1.PodRunning, false},
		{"one never started", []corev1.ContainerStatus{running, waiting}, nil, false, corev1.PodPending, false},
		{"one starts again", []corev1.ContainerStatus{running, restarting}, nil, false, corev1.PodRunning, false},
		{"a gate is missing", []corev1.ContainerStatus{running}, gate, false, corev1.PodRunning, false},
		{"one ended, one runs", []corev1.ContainerStatus{running, over(0)}, nil, false, corev1.PodRunning, false},
		{"all ended well", []corev1.ContainerStatus{over(0)}, nil, true, corev1.PodSucceeded, false},
		{"one failed", []corev1.ContainerStatus{over(0), over(3)}, nil, true, corev1.PodFailed, false},
		{"deleted before it started", []corev1.ContainerStatus{waiting}, nil, true, corev1.PodFailed, false},
	} {
		before := metav1.NewTime(time.Unix(100, 0))
		st := Build(Snapshot{
			Spec: &corev1.PodSpec{ReadinessGates: c.gates}, PodIP: "198.18.0.2", Containers: c.in, Finished: c.finished,
			Now:      metav1.NewTime(time.Unix(200, 0)),
			Previous: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: before}},
		})
		if st.Phase != c.phase || isReady(st) != c.ready {
			t.Errorf("%s: phase %s, conditions %+v", c.what, st.Phase, st.Conditions)
		}
		for _, cond := range st.Conditions {
			if cond.Type == corev1.PodReady && cond.LastTransitionTime.Equal(&before) != c.ready {
				t.Errorf("%s: transition time %s", c.what, cond.LastTransitionTime)
			}
		}
	}
}
