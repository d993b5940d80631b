package local

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/local/node"
)

// Without isolation nothing can be frozen: a create with autoPause is refused.
func TestPausableByIsolation(t *testing.T) {
	for isolation, want := range map[node.Isolation]bool{node.IsolationNone: false, node.IsolationFull: true} {
		if got := v1alpha1.Freezable(&basePool(1, isolation).Spec.Template.Template.Spec); got != want {
			t.Errorf("isolation %s: %v", isolation, got)
		}
	}
}

// Without isolation the commands of a sandbox carry the node's mark: it finds those
// that outlived it by that alone.
func TestPlainCommandsCarryTheMark(t *testing.T) {
	for isolation, want := range map[node.Isolation]bool{node.IsolationNone: true, node.IsolationFull: false} {
		names := baseImageEnv[commandEnv]
		for _, v := range basePool(1, isolation).Spec.Template.Template.Spec.Containers[0].Env {
			if v.Name == commandEnv {
				names = v.Value
			}
		}
		for _, name := range node.PlainEnv() {
			if strings.Contains(names, name) != want {
				t.Errorf("isolation %s: %q, want %s in it: %v", isolation, names, name, want)
			}
		}
		if !strings.Contains(names, "LANG") {
			t.Errorf("isolation %s: %q lacks LANG", isolation, names)
		}
	}
}

// Where commands run as the user of this machine there is no root to become.
func TestSudoNeedsIsolation(t *testing.T) {
	for isolation, want := range map[node.Isolation]bool{node.IsolationNone: false, node.IsolationFull: true} {
		args := basePool(1, isolation).Spec.Template.Template.Spec.Containers[0].Args
		if slices.Contains(args, "--sudo") != want {
			t.Errorf("isolation %s: %q, want --sudo: %v", isolation, args, want)
		}
	}
}
