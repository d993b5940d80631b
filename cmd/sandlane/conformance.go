package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/conformance"
	"github.com/sandlane/sandlane/conformance/sdk"
)

func newConformance() *cobra.Command {
	var o conformance.Options
	var format, require string
	var sdks []string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "conformance",
		Example: `  sandlane conformance --url http://127.0.0.1:8080 --key e2b_…
  sandlane conformance --url http://127.0.0.1:8080 --key e2b_… --sdk python==2.63.0,js==2.51.0`,
		Short: "Ask any backend of E2B's API what E2B's SDKs ask, and say what works",
		Long: `Ask a backend that speaks E2B's API, case by case: each works, is refused in E2B's
words, is wrong, or was not tried. A case whose expectation only Sandlane has is unproven
where the backend differs, and never wrong. All that the cases make is named by this run,
lives ten minutes at most, and is deleted at the end, also after Ctrl-C.

--sdk also runs E2B's SDKs, unmodified, which Python 3.10 with venv, or Node.js with npm,
installs into your cache. Pinned to the last dependency are
` + strings.Join(sdk.Pinned(), ", ") + `; any other version is installed as it is today.

This has been run against Sandlane, not against E2B itself.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.URL, "url", "", "`URL` of the REST API")
	f.StringVar(&o.SandboxURL, "sandbox-url", "", "`URL` of sandboxes, as in E2B_SANDBOX_URL (default --url)")
	f.StringVar(&o.Key, "key", "", "API `KEY` (default $E2B_API_KEY)")
	f.StringVar(&o.Template, "template", "base", "template of the sandboxes")
	f.StringSliceVar(&sdks, "sdk", nil, "`SDK` to run too, as python==2.63.0 or js==2.51.0; its cases are sdk/CASE")
	f.StringSliceVar(&o.Only, "only", nil, "`FEATURE` or FEATURE/CASE to try, and no other")
	f.StringVar(&format, "format", "text", "form of the result: "+strings.Join(conformance.Formats, ", "))
	f.StringVar(&require, "require", "no-wrong", "what the exit code 0 asks for: no-wrong, all-work (nothing refused or not tried either), none")
	f.DurationVar(&timeout, "timeout", 30*time.Minute, "how long all may take; cases that are not reached are not tried")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Key == "" {
			o.Key = os.Getenv("E2B_API_KEY")
		}
		switch {
		case o.URL == "" || o.Key == "":
			return errors.New("--url and --key say which backend to ask")
		case !slices.Contains(conformance.Formats, format):
			return fmt.Errorf("--format %s: it is one of %s", format, strings.Join(conformance.Formats, ", "))
		case !slices.Contains([]string{"no-wrong", "all-work", "none"}, require):
			return fmt.Errorf("--require %s: it is one of no-wrong, all-work, none", require)
		}
		for _, text := range sdks {
			parsed, err := sdk.Parse(text)
			if err != nil {
				return fmt.Errorf("--sdk: %w", err)
			}
			o.SDKs = append(o.SDKs, parsed...)
		}
		o.Progress = func(r conformance.Result) { _ = conformance.WriteLine(cmd.ErrOrStderr(), r) }
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		results, err := conformance.Run(ctx, o)
		if err != nil {
			return err
		}
		if err := conformance.Write(cmd.OutOrStdout(), format, results); err != nil {
			return err
		}
		n := conformance.Count(results)
		bad := n[conformance.Wrong]
		if require == "all-work" {
			bad = len(results) - n[conformance.Works]
		}
		if bad > 0 && require != "none" {
			return fmt.Errorf("%d of %d cases are not as --require %s asks", bad, len(results), require)
		}
		return nil
	}
	return cmd
}
