package chaos

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// closeDefaultPool makes the gateway refuse requests for new sandboxes that name no pool: a
// request for a sandbox that was deleted is refused, and makes no other sandbox.
func closeDefaultPool(ctx context.Context, s *stack.Stack) error {
	var p v1alpha1.SandboxPool
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "echo"}, &p); err != nil {
		return fmt.Errorf("read the default pool: %w", err)
	}
	before := p.DeepCopy()
	p.Spec.FirstRequest = nil
	if err := s.Client.Patch(ctx, &p, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("close the default pool: %w", err)
	}
	return nil
}

// tableFolders returns the folders of the stack's route tables; none without the fast path.
func tableFolders(s *stack.Stack) (all []string, err error) {
	if !s.FastPath {
		return nil, nil
	}
	for _, g := range s.Up.Gateways {
		folder, err := tableFolder(g)
		if err != nil {
			return nil, err
		}
		all = append(all, folder)
	}
	return all, nil
}

// hitsInEnvoy returns how many requests were answered from the tables so far, by the
// counters of the workers, which stay when gateways and Envoys are killed.
func hitsInEnvoy(folders []string) (sum uint64, err error) {
	// As docs/design/fastpath.md has it: after a page of the gateway's, a slot for each
	// worker, whose second word counts its hits.
	const page, slot, workers = 4096, 128, 64
	for _, folder := range folders {
		control, err := os.ReadFile(filepath.Join(folder, "control"))
		if err != nil {
			return 0, fmt.Errorf("read a table: %w", err)
		}
		for w := range workers {
			at := page + w*slot + 8
			if len(control) < at+8 {
				return 0, fmt.Errorf("the table in %s has %d bytes", folder, len(control))
			}
			sum += binary.LittleEndian.Uint64(control[at:])
		}
	}
	return sum, nil
}

// tableFolder returns the folder of the table with which the gateway was started.
func tableFolder(g stack.Gateway) (string, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", g.Pids["gateway"]))
	if err != nil {
		return "", fmt.Errorf("find the table of %s: %w", g.Name, err)
	}
	args := strings.Split(string(line), "\x00")
	i := slices.Index(args, "--fast-path-folder")
	if i < 0 || i+1 >= len(args) {
		return "", errors.New(g.Name + " was started without a table")
	}
	return args[i+1], nil
}
