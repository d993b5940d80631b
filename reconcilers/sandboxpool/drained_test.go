package sandboxpool

import (
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A pool says for which mark it has no pods, once it knows all that it has made.
func TestStatusNamesTheMark(t *testing.T) {
	pool := &v1alpha1.SandboxPool{}
	for _, c := range []struct {
		mark  string
		shown bool
		pods  int
		want  string
	}{{"2026", true, 0, "2026"}, {"2026", false, 0, ""}, {"2026", true, 1, ""}, {"", true, 0, ""}} {
		pool.Annotations = map[string]string{v1alpha1.AnnotationDraining: c.mark}
		var out outcome
		out.shown = c.shown
		if fillStatus(pool, counts{total: c.pods}, out); pool.Status.Drained != c.want {
			t.Errorf("%+v: %q", c, pool.Status.Drained)
		}
	}
}
