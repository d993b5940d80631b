package gateway

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/test/cmodule"
)

// A gateway without a table that finds none in its folder, but an Envoy beside it, waits
// for as long as that Envoy may trust a table whose files were removed.
func TestSettleWithoutATable(t *testing.T) {
	f := &fastPath{folder: cmodule.Folder(t)}
	began := time.Now()
	if err := f.settle(t.Context(), envoy.Admin{Socket: serveClusters(t, func() {})}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("settled beside a living Envoy after %v", took)
	}
	if err := f.settle(t.Context(), envoy.Admin{Socket: filepath.Join(f.folder, "none")}); err != nil {
		t.Errorf("without an Envoy: %v", err)
	}
}
