package activation

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// wantPhases checks how often each phase was measured; each is there from the start.
func wantPhases(t *testing.T, reg *prometheus.Registry, want map[string]uint64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, family := range families {
		if family.GetName() == "sandlane_activation_phase_seconds" {
			for _, m := range family.Metric {
				got[m.Label[0].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	for _, phase := range []string{phaseQueue, phaseCreate, phasePatch, phaseReady, phaseInit} {
		if n, ok := got[phase]; !ok || n != want[phase] {
			t.Errorf("phase %s was measured %d times (%v), want %d", phase, n, ok, want[phase])
		}
	}
}

// TestStartingPodIsAwaited has an activation with the phase ready.
func TestPhasesOfAFirstRequest(t *testing.T) {
	w, reg := newWorld(t), prometheus.NewRegistry()
	w.idle(1)
	g := w.gateway(w.c)
	g.o.Metrics = NewMetrics(reg)
	g.o.Ready = func(context.Context, *v1alpha1.Sandbox, *corev1.Pod) error { return nil }
	wantPhases(t, reg, nil)
	g.activates(t, w.request(kubetest.Name("first"), true, 20*time.Second))
	wantPhases(t, reg, map[string]uint64{phaseQueue: 1, phaseCreate: 1, phasePatch: 1, phaseInit: 1})
}
