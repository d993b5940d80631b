package process

import (
	"os"
	"path/filepath"
	"testing"
)

// What containers could reach of the helper program cannot be written.
func TestHelperIsSealed(t *testing.T) {
	helper := filepath.Join(t.TempDir(), "podinit")
	if err := os.WriteFile(helper, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := NewRunner(helper, t.TempDir(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if f, err := os.OpenFile(r.helper, os.O_WRONLY, 0); err == nil {
		_, err = f.Write([]byte("evil"))
		_ = f.Close()
		if err == nil {
			t.Error("the helper program was written")
		}
	}
}
