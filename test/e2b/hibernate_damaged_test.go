package e2b

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A sandbox of which the store has lost a bit is not resumed with other files than it had:
// the call fails, the sandbox stays paused, and resumes once the store is repaired.
func TestDamagedArchive(t *testing.T) {
	t.Parallel() // it waits more than it works
	m := newTeam(t, "damaged", func(p *v1alpha1.SandboxPool) { p.Spec.Replicas = 1 })
	s := m.create(t, `{"templateID":"base","timeout":600}`)
	const part = 1 << 20                                // of an archive
	content := strings.Repeat("what is kept ", part/10) // more than one part
	if a := m.file(t, s, "/home/user/kept.txt", content); a.Status != 200 {
		t.Fatalf("writing the file: %v", a)
	}
	if a := m.ask(t, "POST", "/sandboxes/"+s.SandboxID+"/pause", `{"memory":false}`); a.Status != 204 {
		t.Fatalf("pause: %v", a)
	}
	now, _ := shared.Sandbox(t, s.SandboxID)
	kept := &v1alpha1.Checkpoint{}
	if err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: m.namespace, Name: now.Spec.Restore.Checkpoint}, kept); err != nil {
		t.Fatal(err)
	}
	archive, err := os.OpenFile(filepath.Join(shared.State, "checkpoints", string(kept.UID)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = archive.Close() }()
	change := func() { // in the second part
		var b [1]byte
		_, err := archive.ReadAt(b[:], part+1000)
		b[0] ^= 1
		if err == nil {
			_, err = archive.WriteAt(b[:], part+1000)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	change()
	if a := m.ask(t, "POST", "/sandboxes/"+s.SandboxID+"/connect", `{"timeout":600}`); a.Status < 500 {
		t.Errorf("connect: %v", a)
	}
	shared.Eventually(t, time.Minute, "the resume to be taken back", func() (bool, string) {
		now, _ := shared.Sandbox(t, s.SandboxID)
		return v1alpha1.Hibernated(&now) && now.Status.Phase == v1alpha1.SandboxPaused, fmt.Sprintf("%+v, %+v", now.Spec, now.Status)
	})
	if a := m.file(t, s, "/home/user/kept.txt", ""); a.Status != 502 {
		t.Errorf("a request to it: %v", a)
	}
	change()
	shared.WaitIdle(t, m.namespace, "base", 1)
	shared.Eventually(t, time.Minute, "it to be resumed", func() (bool, string) {
		a := m.ask(t, "POST", "/sandboxes/"+s.SandboxID+"/connect", `{"timeout":600}`)
		return a.Status == 201 || a.Status == 200, a.String()
	})
	if a := m.file(t, s, "/home/user/kept.txt", ""); a.Status != 200 || string(a.Body) != content {
		t.Errorf("the file afterwards: %d, %d bytes", a.Status, len(a.Body))
	}
	if a := m.ask(t, "DELETE", "/sandboxes/"+s.SandboxID, ""); a.Status != 204 {
		t.Errorf("kill: %v", a)
	}
}
