package backend

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// Each sandbox counts once: by the watch, or, before the watch shows it, as one that this
// gateway freezes.
func TestFreezes(t *testing.T) {
	var f freezes
	pool := types.NamespacedName{Namespace: "n", Name: "p"}
	watched := map[string]bool{}
	begin := func(pool types.NamespacedName, id string) func() {
		end, ok := f.begin(pool, id, 3, func() int { return len(watched) }, func(id string) bool { return watched[id] })
		if !ok {
			return nil
		}
		return end
	}
	watched["a"] = true
	b := begin(pool, "b")
	c := begin(pool, "c")
	if b == nil || c == nil {
		t.Fatal("there was room for two more")
	}
	if begin(pool, "d") != nil {
		t.Error("a fourth one has room")
	}
	if end := begin(pool, "c"); end == nil {
		t.Error("a second call for the same sandbox takes other room")
	} else {
		end()
	}
	if end := begin(types.NamespacedName{Namespace: "n", Name: "other"}, "d"); end == nil {
		t.Error("another pool has no room")
	} else {
		end()
	}
	watched["b"] = true // while its freeze is under way
	if begin(pool, "d") != nil {
		t.Error("a fourth one has room once the watch shows the second")
	}
	b()
	c() // it failed
	d := begin(pool, "d")
	if d == nil {
		t.Fatal("the room of the one that failed is not free")
	}
	if d(); len(f.byPool) != 0 {
		t.Errorf("left: %s", fmt.Sprint(f.byPool))
	}
}
