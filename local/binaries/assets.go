package binaries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Assets returns one folder that holds every program of All, as envtest wants
// it in $KUBEBUILDER_ASSETS. Programs that lie in different folders are linked
// into one of the cache.
func Assets(ctx context.Context, o Options) (string, error) {
	found, err := Find(ctx, o, All()...)
	if err != nil {
		return "", err
	}
	if err := o.complete(); err != nil {
		return "", err
	}
	dirs := map[string]bool{}
	var paths []string
	for _, path := range found {
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", fmt.Errorf("find the folder of %s: %w", path, err)
		}
		dirs[filepath.Dir(abs)] = true
		paths = append(paths, abs)
	}
	slices.Sort(paths)
	if len(dirs) == 1 {
		return filepath.Dir(paths[0]), nil
	}
	sum := sha256.Sum256(fmt.Append(nil, paths))
	dir := filepath.Join(o.CacheDir, "kube", "assets-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a folder of all binaries: %w", err)
	}
	for _, path := range paths {
		err := os.Symlink(path, filepath.Join(dir, filepath.Base(path)))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("make a folder of all binaries: %w", err)
		}
	}
	return dir, nil
}
