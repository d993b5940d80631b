package sandboxenv

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// Only the very versions that needed no write are taken for settled, and those of members
// and envs that are gone are not kept.
func TestInLine(t *testing.T) {
	var l inLine
	env, v := types.NamespacedName{Namespace: "ns", Name: "e"}, versions{env: "1", pool: "2", template: "4"}
	if l.has(env, "m", v) {
		t.Error("known before it was kept")
	}
	l.keep(env, "m", v)
	if !l.has(env, "m", v) {
		t.Error("forgotten at once")
	}
	for name, other := range map[string]versions{
		"the env has changed": {env: "3", pool: "2", template: "4"}, "the pool has changed": {env: "1", pool: "3", template: "4"},
		"the template has gone": {env: "1", pool: "2"}, "the template has changed": {env: "1", pool: "2", template: "5"},
	} {
		if l.has(env, "m", other) {
			t.Error(name + ", and it is taken for settled")
		}
	}
	if l.has(env, "n", v) || l.has(types.NamespacedName{Namespace: "ns", Name: "f"}, "m", v) {
		t.Error("another member or env is taken for settled")
	}
	l.keep(env, "n", v)
	l.forget(env, map[string]bool{"n": true})
	if l.has(env, "m", v) || !l.has(env, "n", v) {
		t.Error("a member that is gone is kept, or one that is there is not")
	}
	if l.forget(env, nil); len(l.envs) != 0 {
		t.Errorf("an env that is gone is kept: %v", l.envs)
	}
}
