package watch

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress/names"
)

// What the API server takes as a pool's names for first requests can be read here: else such a
// sandbox would connect to nothing, and nobody be told why.
func TestNamesOfPoolsAreRead(t *testing.T) {
	text, err := os.ReadFile("../../api/crds/sandlane.dev_sandboxpools.yaml")
	must(t, err)
	var crd map[string]any
	must(t, yaml.Unmarshal(text, &crd))
	at := crd["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	for _, field := range []string{"spec", "firstRequest", "egress", "allowNames"} {
		at = at["properties"].(map[string]any)[field].(map[string]any)
	}
	taken := regexp.MustCompile(at["items"].(map[string]any)["pattern"].(string))
	parts := []string{"a", "1", "0x1", "-", "_", ".", "*", "*.", ".com", "example", "A", "/", ":", strings.Repeat("b", 62)}
	read := 0
	for range 200_000 {
		name := ""
		for range 1 + rand.IntN(6) {
			name += parts[rand.IntN(len(parts))]
		}
		if len(name) > 253 || !taken.MatchString(name) {
			continue
		}
		read++
		if _, err := names.NewPolicy(names.Rules{DenyAll: true, AllowNames: []string{name}}); err != nil {
			t.Errorf("a pool may have the name %q: %v", name, err)
		}
	}
	if read < 1000 {
		t.Errorf("only %d names were tried", read)
	}
	s, x := newState(&told{}, nil, slog.New(slog.DiscardHandler)), sandbox("s1", "c1", "p1")
	x.Spec.Egress = (&v1alpha1.FirstRequestEgress{AllowNames: []string{"api.example"}}).Sandbox()
	if p := s.policyOf(x); !p.Decide("api.example").Allowed || p.Decide("other.example").Allowed || !p.DeniesAll() {
		t.Error("a sandbox of a first request has other names than its pool's")
	}
}
