package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// init keeps the goroutine of main on its thread: processes that package suite starts die
// with the thread that started them.
func init() { runtime.LockOSThread() }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// With `make bench | tee log` an interrupt ends tee too. The processes that were
	// started here must be stopped although nothing can be printed any more.
	signal.Ignore(syscall.SIGPIPE)
	log.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	if err := newRoot().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "sandlane-bench:", err)
		if errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "sandlane-bench: nothing was written")
		}
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "sandlane-bench", Short: "Measure what Sandlane promises, against floors of the same run",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(newRun("all"), newRun("quick"), newCompare(), newList(), newRender())
	root.AddCommand(helpers()...)
	return root
}

func newList() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the sections", Args: cobra.NoArgs, Run: func(cmd *cobra.Command, _ []string) {
		for _, s := range sections() {
			fmt.Fprintf(cmd.OutOrStdout(), "%-10s  %s\n", s.Name, s.About)
		}
	}}
}
