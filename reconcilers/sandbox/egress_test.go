package sandbox

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// processes stands for all egress processes.
type processes struct {
	answer error
	asked  []string
}

func (p *processes) Fence(_ context.Context, addr netip.Addr, _ uint64) error {
	p.asked = append(p.asked, addr.String())
	return p.answer
}

// The end of a sandbox of a pod with egress ByName waits for egress to acknowledge its
// address, also once the pod is gone; no other sandbox's end asks for it.
func TestEndAsksEgress(t *testing.T) {
	for _, c := range []struct {
		name         string
		label, noted bool // on the pod, in the status
		gone         bool // the pod
		want         int
	}{
		{name: "plain"},
		{name: "by name", label: true, want: 1},
		{name: "plain, pod gone", gone: true},
		{name: "by name, pod gone", noted: true, gone: true, want: 1},
	} {
		s, pod := endingOne()
		if c.label {
			pod.Labels[v1alpha1.LabelEgress] = string(v1alpha1.EgressByName)
		}
		s.Status.Address, s.Status.AddressClaim, s.Status.AddressByName = "10.0.0.1", s.Spec.Binding.ClaimID, c.noted
		pod.Annotations[v1alpha1.AnnotationAddress] = "10.0.0.1"
		g := newRig(t, s, pod)
		if c.gone {
			if err := g.Client.Delete(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		egress := &processes{answer: errors.New("it stands still")}
		g.Egress = egress
		g.step(t)
		ended := g.sandbox(t).Status.Phase == v1alpha1.SandboxEnded
		if len(egress.asked) != c.want || len(g.asked) != 1 || ended != (c.want == 0) {
			t.Errorf("%s: egress was asked %v, gateways %v; ended: %v", c.name, egress.asked, g.asked, ended)
		}
		if !ended {
			egress.answer = nil
			g.clock.SetTime(now.Add(time.Minute))
			g.step(t)
		}
		if is := g.sandbox(t).Status; is.Phase != v1alpha1.SandboxEnded || is.FencedAt == nil || is.AddressByName != (c.want > 0) {
			t.Errorf("%s: in the end %+v", c.name, is)
		}
	}
}

// A pod that is not known may have been one with egress ByName.
func TestUnknownPodIsAskedFor(t *testing.T) {
	if _, pod := endingOne(); !isByName(nil) || isByName(pod) {
		t.Error("egress is asked for what it cannot have, or not for what it may have")
	}
}
