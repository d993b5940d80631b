package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// points is the folder where the stack's processes look for their points
// (package failpoint).
var points string

// checkFailpoints returns an error if the binary under test has no failpoints: then armed
// points would have no effect.
func checkFailpoints() error {
	bin, err := stack.Binary()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, bin, "version").Output()
	if err != nil {
		return fmt.Errorf("%s version: %w", bin, err)
	}
	if words := strings.Fields(string(out)); len(words) < 2 || !strings.HasSuffix(words[1], "-failpoints") {
		return fmt.Errorf("test/chaos needs a binary with failpoints, and %s has none: run `make chaos`, or `make build-failpoints` and set %s to bin/sandlane-failpoints", bin, stack.BinaryEnv)
	}
	return nil
}

// upItself is the process name of `up`. Its points are beside the folders of its children.
const upItself = "."

// arm sets what happens at a point of a process, until the test ends.
func arm(t *testing.T, process, point, what string) {
	t.Helper()
	if err := set(process, point, what); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disarm(t, process, point) })
}

// set is arm for any goroutine; the point stays set until unset.
func set(process, point, what string) error {
	file := pointFile(process, point)
	err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), removed(file+".held"))
	if err == nil {
		// Renamed, so that no process reads half of it.
		err = errors.Join(os.WriteFile(file+".new", []byte(what), 0o600), os.Rename(file+".new", file))
	}
	if err != nil {
		return fmt.Errorf("arm %s of %s: %w", point, process, err)
	}
	return nil
}

// disarm releases the goroutines that are held at the point.
func disarm(t *testing.T, process, point string) {
	t.Helper()
	if err := unset(process, point); err != nil {
		t.Error(err)
	}
}

// unset is disarm for any goroutine.
func unset(process, point string) error {
	if err := removed(pointFile(process, point)); err != nil {
		return fmt.Errorf("disarm %s of %s: %w", point, process, err)
	}
	return nil
}

// removed removes a file, if it exists.
func removed(file string) error {
	if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// waitHeld waits until a process is held at the point.
func waitHeld(t *testing.T, process, point string) {
	t.Helper()
	shared.Eventually(t, 30*time.Second, process+" to stand still at "+point, func() (bool, string) {
		_, err := os.Stat(pointFile(process, point) + ".held")
		return err == nil, "it has not been there"
	})
}

// waitHit waits until a process has killed itself at the point.
func waitHit(t *testing.T, process, point string) {
	t.Helper()
	shared.Eventually(t, 30*time.Second, process+" to get to "+point, func() (bool, string) {
		err := os.Remove(pointFile(process, point) + ".hit")
		return err == nil, "it has not been there"
	})
}

// waitHitOfAny waits until one of the gateways has killed itself at the point, and returns
// its index.
func waitHitOfAny(t *testing.T, gateways []stack.Gateway, point string) (killed int) {
	t.Helper()
	shared.Eventually(t, 30*time.Second, "a gateway to get to "+point, func() (bool, string) {
		for i, g := range gateways {
			if err := os.Remove(pointFile(g.Name, point) + ".hit"); err == nil {
				killed = i
				return true, ""
			}
		}
		return false, "none has been there"
	})
	return killed
}

func pointFile(process, point string) string {
	return filepath.Join(points, process, filepath.FromSlash(point))
}
