package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// copyCheckout copies what git tracks or would track below root to a new folder.
func copyCheckout(ctx context.Context, root string) (string, error) {
	list, err := output(ctx, root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "sandlane-mutants-")
	if err != nil {
		return "", err
	}
	for name := range bytes.SplitSeq(bytes.TrimRight(list, "\x00"), []byte{0}) {
		if err := copyFile(filepath.Join(root, string(name)), filepath.Join(dir, string(name))); err != nil {
			return dir, fmt.Errorf("copying the checkout: %w", err)
		}
	}
	return dir, nil
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if os.IsNotExist(err) {
		return nil // deleted in the checkout, not yet in git
	}
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}

// output runs a command in a folder; the error of one that fails shows what it
// said.
func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w: %s", name, args[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return out, nil
}
