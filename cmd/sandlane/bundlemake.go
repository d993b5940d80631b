package main

import (
	"crypto/rand"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"aead.dev/minisign"
	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/interpreter"
	"github.com/sandlane/sandlane/local/binaries"
	"github.com/sandlane/sandlane/local/bundle"
	"github.com/sandlane/sandlane/local/node/rootfs"
)

// passwordEnv has the password of a key that has one.
const passwordEnv = "SANDLANE_BUNDLE_PASSWORD"

func newBundle() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bundle",
		Example: `  sandlane bundle key release.key && sandlane bundle make release --key release.key`,
		Short:   "Make and check signed releases, with which `up` needs no compiler and no network",
		Args:    cobra.NoArgs,
	}
	cmd.AddCommand(newBundleKey(), newBundleMake(), newBundleSign(), newBundleVerify())
	return cmd
}

func newBundleKey() *cobra.Command {
	return &cobra.Command{
		Use:     "key FILE",
		Example: `  sandlane bundle key release.key`,
		Short:   "Make a key that signs bundles, and its public part in FILE.pub",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			public, private, err := minisign.GenerateKey(rand.Reader)
			if err != nil {
				return fmt.Errorf("make a key: %w", err)
			}
			if err := writeKey(args[0], private); err != nil {
				return err // a public key beside another's private one would refuse all bundles
			}
			if err := writeKey(args[0]+".pub", public); err != nil {
				return errors.Join(err, os.Remove(args[0]))
			}
			return nil
		},
	}
}

func writeKey(path string, key encoding.TextMarshaler) error {
	text, err := key.MarshalText()
	if err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	return nil
}

func newBundleMake() *cobra.Command {
	var keyFile string
	var wheels bool
	cmd := &cobra.Command{
		Use:     "make DIR",
		Example: `  sandlane bundle make release --key release.key`,
		Short:   "Write the bundle of this version and machine into a folder",
		Long: `Write the bundle of this version and machine into a folder: API server, etcd,
controller manager, kubectl and Envoy, which are built or downloaded first if they
are not in the cache. $` + passwordEnv + ` is the key's password, if it has one.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := readKey(keyFile)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write the bundle: %w", err)
			}
			cache, err := os.UserCacheDir()
			if err != nil {
				return fmt.Errorf("no cache folder (set $HOME or $XDG_CACHE_HOME): %w", err)
			}
			cache = filepath.Join(cache, "sandlane")
			paths, err := pinnedPrograms(cmd, cache)
			if err != nil {
				return err
			}
			if wheels {
				more, err := wheelsOf(cmd, cache)
				if err != nil {
					return err
				}
				paths = append(paths, more...)
			}
			build := bundle.Build{Version: ownVersion(), OS: runtime.GOOS, Arch: runtime.GOARCH}
			file := filepath.Join(args[0], build.Name())
			f, err := os.Create(file + ".new") // an earlier bundle stays until this one is whole
			if err != nil {
				return fmt.Errorf("write the bundle: %w", err)
			}
			if err := errors.Join(bundle.Write(f, cache, paths, build, key), f.Close()); err != nil {
				return errors.Join(err, os.Remove(f.Name()))
			}
			if err := os.Rename(f.Name(), file); err != nil {
				return errors.Join(fmt.Errorf("write the bundle: %w", err), os.Remove(f.Name()))
			}
			fmt.Fprintln(cmd.OutOrStdout(), file)
			return nil
		},
	}
	bundleKeyFlag(cmd, &keyFile)
	cmd.Flags().BoolVar(&wheels, "wheels", false, "add the code interpreter's packages for this machine's version of Python, some 200 MB")
	return cmd
}

func newBundleSign() *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use:     "sign FILE",
		Example: `  sandlane bundle sign release/SHA256SUMS --key release.key`,
		Short:   "Sign a file, into FILE.minisig",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			key, err := readKey(keyFile)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("sign a file: %w", err)
			}
			signature := minisign.SignWithComments(key, text, filepath.Base(args[0]), "signature of "+filepath.Base(args[0]))
			if err := os.WriteFile(args[0]+".minisig", signature, 0o644); err != nil {
				return fmt.Errorf("sign a file: %w", err)
			}
			return nil
		},
	}
	bundleKeyFlag(cmd, &keyFile)
	return cmd
}

func newBundleVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "verify DIR [FILE...]",
		Example: `  sandlane bundle verify release --bundle-key release.key.pub`,
		Short:   "Check a release's folder, or some files of it, by its signed sums",
		Args:    cobra.MinimumNArgs(1),
	}
	keyFile := cmd.Flags().String(keyFlag, "", "file with the publisher's public key (default the one compiled in, if any)")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		key, err := publisherKey(*keyFile)
		if err != nil {
			return err
		}
		return bundle.Verify(args[0], key, args[1:]...)
	}
	return cmd
}

func bundleKeyFlag(cmd *cobra.Command, keyFile *string) {
	cmd.Flags().StringVar(keyFile, "key", "", "file of the key that signs (`sandlane bundle key` makes one)")
	if err := cmd.MarkFlagRequired("key"); err != nil {
		panic(err) // no such flag: a slip in this function
	}
}

func readKey(path string) (key minisign.PrivateKey, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return key, fmt.Errorf("read the key: %w", err)
	}
	if minisign.IsEncrypted(text) {
		key, err = minisign.DecryptKey(os.Getenv(passwordEnv), text)
	} else {
		err = key.UnmarshalText(text)
	}
	if err != nil {
		return key, fmt.Errorf("read the key %s: %w", path, err)
	}
	return key, nil
}

// pinnedPrograms returns where the programs of a bundle are below the cache folder: those of
// this version, whatever the environment names.
func pinnedPrograms(cmd *cobra.Command, cache string) (paths []string, err error) {
	progress := func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
	unset := func(string) string { return "" }
	found, err := binaries.Find(cmd.Context(), binaries.Options{Progress: progress, Getenv: unset}, binaries.All()...)
	if err != nil {
		return nil, err
	}
	noEnvoy := func(name string) (string, error) {
		if name == "envoy" {
			return "", exec.ErrNotFound
		}
		return exec.LookPath(name)
	}
	envoyBin, err := envoy.Find(cmd.Context(), envoy.FindOptions{Progress: progress, Getenv: unset, LookPath: noEnvoy})
	if err != nil {
		return nil, err
	}
	for _, program := range append(slices.Sorted(maps.Values(found)), envoyBin) {
		path, err := filepath.Rel(cache, program)
		if err != nil || !filepath.IsLocal(path) {
			return nil, fmt.Errorf("%s is not in the cache folder %s", program, cache)
		}
		paths = append(paths, filepath.ToSlash(path))
	}
	return paths, nil
}

// wheelsOf returns where the code interpreter's wheels are below the cache folder.
func wheelsOf(cmd *cobra.Command, cache string) (paths []string, err error) {
	dir, err := interpreter.Wheels(cmd.Context(), interpreter.Options{
		Python: rootfs.SeenOnPath("python3"), CacheDir: cache, Progress: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) },
	})
	if err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil {
		return nil, err
	}
	for _, wheel := range found {
		path, err := filepath.Rel(cache, wheel)
		if err != nil {
			return nil, err
		}
		paths = append(paths, filepath.ToSlash(path))
	}
	return paths, nil
}
