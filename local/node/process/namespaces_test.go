package process

import (
	"errors"
	"os"
	"testing"
)

// An exec that begins as the container ends has the container's namespaces or none: their
// files are its own, so that no number is used for what was opened since.
func TestExecAsTheContainerEnds(t *testing.T) {
	ns, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	want, err := ns.Stat()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{ns: []*os.File{ns}}
	entered, err := p.namespaces()
	if err != nil || len(entered) != 1 {
		t.Fatalf("%v, %v", entered, err)
	}
	p.leaveNamespaces()
	if got, err := entered[0].Stat(); err != nil || !os.SameFile(got, want) {
		t.Errorf("after the end: %v, %v", got, err)
	}
	closeAll(entered...)
	if _, err := p.namespaces(); !errors.Is(err, errNotRunning) {
		t.Errorf("an exec after the end: %v", err)
	}
}
