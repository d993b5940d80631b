package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"aead.dev/minisign"
	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/local/bundle"
)

// bundleKey is the public key of the release's publisher, set at link time; without it
// --bundle-key names one.
var bundleKey = ""

const (
	bundleEnv = "SANDLANE_BUNDLE"
	keyFlag   = "bundle-key"
)

// bundleFlags adds the flags of a bundle to a command, and returns what takes the bundle that
// they name, if they do.
func bundleFlags(cmd *cobra.Command) (take func() error) {
	flags := cmd.Flags()
	from := flags.String("bundle", os.Getenv(bundleEnv), "take API server, etcd, Envoy and kubectl from the signed bundle of this release in place of building them: its file, or the folder or URL that has it (default $"+bundleEnv+")")
	keyFile := flags.String(keyFlag, "", "file with the public key of the bundle's publisher (default the one compiled in, if any)")
	return func() error {
		if *from == "" {
			if *keyFile != "" {
				return fmt.Errorf("--%s without --bundle", keyFlag)
			}
			return nil
		}
		key, err := publisherKey(*keyFile)
		if err != nil {
			return err
		}
		err = bundle.Fill(cmd.Context(), bundle.Options{
			From: *from, Key: key, Build: bundle.Build{Version: ownVersion(), OS: runtime.GOOS, Arch: runtime.GOARCH},
			Progress: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) },
		})
		if err != nil {
			return err
		}
		// `up --detach` runs this program once more, which finds the programs in the cache and is
		// not told the key.
		return os.Unsetenv(bundleEnv)
	}
}

// publisherKey is the key of a file, or without one the key that is compiled in.
func publisherKey(file string) (key minisign.PublicKey, err error) {
	text := []byte(bundleKey)
	if file != "" {
		if text, err = os.ReadFile(file); err != nil {
			return key, fmt.Errorf("--%s: %w", keyFlag, err)
		}
	}
	if len(text) == 0 {
		return key, errors.New("this sandlane is no release and knows no publisher: name the file with the publisher's public key in --" + keyFlag)
	}
	return bundle.ParseKey(text)
}
