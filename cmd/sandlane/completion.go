package main

import "github.com/spf13/cobra"

// takeFiles has a shell offer files for the values of flags, which newRoot keeps it from.
func takeFiles(cmd *cobra.Command, names ...string) {
	// MarkFlagFilename without extensions does nothing beside a default directive.
	offer := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	for _, n := range names {
		if err := cmd.RegisterFlagCompletionFunc(n, offer); err != nil {
			panic(err) // no such flag: a slip in this package
		}
	}
}

// takeFolders has a shell offer folders for the values of flags.
func takeFolders(cmd *cobra.Command, names ...string) {
	offer := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	for _, n := range names {
		if err := cmd.RegisterFlagCompletionFunc(n, offer); err != nil {
			panic(err) // no such flag: a slip in this package
		}
	}
}
