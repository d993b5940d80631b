package stack

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// startTimeout bounds the start of the stack that a package's tests share.
const startTimeout = 10 * time.Minute

// Main is called by TestMain: it starts a stack with the given arguments in a
// folder of its own, hands it to use, runs the tests and stops it. When a test
// fails it shows the ends of the logs and leaves the folder. It returns the exit
// code.
func Main(m *testing.M, use func(*Stack) error, args ...string) int {
	flag.Parse()
	ctrllog.SetLogger(klog.NewKlogr())
	dir, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	name := filepath.Base(dir)
	if os.Getuid() != 0 {
		fmt.Fprintf(os.Stderr, "test/%s needs root: it gives each sandbox namespaces of its own. Run it as root, or leave it out.\n", name)
		return 1
	}
	state, err := os.MkdirTemp("", "sandlane-"+name+"-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	began := time.Now()
	shared, err := Start(ctx, state, args...)
	if shared == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := 1
	if err == nil {
		err = use(shared)
	}
	if err == nil {
		fmt.Printf("the stack was up after %v\n", time.Since(began).Round(100*time.Millisecond))
		code = m.Run()
	}
	if code != 0 {
		fmt.Fprintln(os.Stderr, shared.Logs(40))
	}
	if err = errors.Join(err, shared.Stop()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if code == 0 {
		_ = os.RemoveAll(state)
	}
	return code
}
