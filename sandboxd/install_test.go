package sandboxd

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// A copy for another container is complete, can be made again over an earlier one that was cut
// short, and leaves nothing beside it.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(t.TempDir(), "program")
	for _, content := range []string{"first", "second"} {
		if err := os.WriteFile(program, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := install(program, dir); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"sandboxd", "sudo"} {
			path := filepath.Join(dir, "bin", name)
			info, err := os.Stat(path)
			if err != nil || info.Mode() != 0o755 {
				t.Fatalf("%s: %v, %v", name, info, err)
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != content {
				t.Errorf("%s has %q, %v", name, b, err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "bin", "sudo.new"), []byte("cut short"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "bin"))
	if err != nil || len(entries) != 3 { // with the file of the last round
		t.Errorf("left: %v, %v", entries, err)
	}
	var errs bytes.Buffer
	if code := Run(t.Context(), []string{"--install=/proc/none"}, &errs, &errs); code != 1 || !bytes.Contains(errs.Bytes(), []byte("copying sandboxd to /proc/none")) {
		t.Errorf("a folder that cannot be made: %d, %s", code, errs.String())
	}
}

// An image whose variables nobody has listed hands on all of them, but neither sandboxd's own
// nor the cluster's.
func TestAllVariablesOfTheImage(t *testing.T) {
	got := commandEnv([]string{"SANDBOXD_ENV=*", "SANDBOXD_INIT_KEY=k", "KUBERNETES_SERVICE_HOST=10.0.0.1", "PATH=/opt/bin", "LANG=C.UTF-8", "EMPTY="})
	if want := map[string]string{"PATH": "/opt/bin", "LANG": "C.UTF-8", "EMPTY": ""}; !maps.Equal(got, want) {
		t.Errorf("commands get %v, want %v", got, want)
	}
}
