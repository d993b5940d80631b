package filesystem

import (
	"context"
	"errors"
	"os"
	"testing"
)

// A client that goes away while its move copies leaves everything as it was.
func TestMoveEndsWithItsClient(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/a", 0o755), os.WriteFile(dir+"/a/f", []byte("f"), 0o600), os.Mkdir(dir+"/to", 0o755)); err != nil {
		t.Fatal(err)
	}
	ctx := &countdown{Context: t.Context(), left: 2} // the folder is copied by then, its file is not
	if err := moveAcross(ctx, dir+"/a", dir+"/to/b"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(dir + "/to"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if text, err := os.ReadFile(dir + "/a/f"); string(text) != "f" || err != nil {
		t.Errorf("the source holds %q: %v", text, err)
	}
}

// countdown is a context that ends after it was asked so many times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// A volume may be mounted at two places: what is moved from one to the other is there already. A
// link to the folder stands for the second mount.
func TestMoveToTheSamePlace(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{os.Mkdir(dir+"/a", 0o700), os.Symlink("a", dir+"/b"), os.WriteFile(dir+"/a/x", []byte("x"), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"x", "y"} {
		if err := moveAcross(t.Context(), dir+"/a/x", dir+"/b/"+name); err != nil {
			t.Fatal(err)
		}
		if content, err := os.ReadFile(dir + "/a/" + name); err != nil || string(content) != "x" {
			t.Errorf("%s: %q, %v", name, content, err)
		}
	}
}
