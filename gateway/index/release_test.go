package index

import (
	"slices"
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// What the hooks are told of an idle release: nothing is lost, a new one comes
// before the old one goes, and what is carried out is not called off.
func TestReleaseHooks(t *testing.T) {
	of := func(claim, token, tokenClaim string, ended bool) *sandbox {
		s := &v1alpha1.Sandbox{}
		if claim != "" {
			s.Spec.Binding = &v1alpha1.Binding{ClaimID: claim, PodName: "p", PodUID: "u"}
		}
		if token != "" {
			s.Spec.Release = &v1alpha1.Release{Token: token, ClaimID: tokenClaim}
		}
		if ended {
			s.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndIdleTimeout}
		}
		return newSandbox(s)
	}
	for _, tc := range []struct {
		name     string
		old, new *sandbox
		want     []string
	}{
		{"found in the first list", nil, of("c", "t", "c", false), []string{"begun c t"}},
		{"begun", of("c", "", "", false), of("c", "t", "c", false), []string{"begun c t"}},
		{"called off", of("c", "t", "c", false), of("c", "", "", false), []string{"off c t"}},
		{"begun anew", of("c", "t", "c", false), of("c", "t2", "c", false), []string{"begun c t2", "off c t"}},
		{"carried out", of("c", "t", "c", false), of("c", "t", "c", true), []string{"changed", "over c"}},
		{"carried out unseen", of("c", "", "", false), of("c", "t", "c", true), []string{"changed", "over c"}},
		{"of another claim", of("c2", "", "", false), of("c2", "t", "c", false), nil},
		{"bound anew", of("c", "t", "c", false), of("c2", "t", "c", false), []string{"changed", "over c"}},
		{"gone", of("c", "t", "c", false), nil, []string{"changed", "over c"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var told []string
			h := Hooks{
				SandboxChanged: func(string) { told = append(told, "changed") },
				ReleaseBegun:   func(_, claim, token string) { told = append(told, "begun "+claim+" "+token) },
				ReleaseOff:     func(_, claim, token string) { told = append(told, "off "+claim+" "+token) },
				ClaimEnded:     func(_, claim string) { told = append(told, "over "+claim) },
			}
			h.complete()
			h.sandboxChanged("a", tc.old, tc.new)
			if !slices.Equal(told, tc.want) {
				t.Errorf("told %q, want %q", told, tc.want)
			}
		})
	}
}
