// Package kubetest gives the tests of a package one real API server and etcd,
// with Sandlane's CRDs installed. It has no node and no controller manager:
// pods stay as they are written, owner references and namespace deletion do
// nothing. test/e2e has the whole stack.
//
// A package's tests call Main from TestMain and take what they need in each
// test:
//
//	func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }
//
//	func TestX(t *testing.T) {
//		c, ns := kubetest.Client(t), kubetest.Namespace(t)
//		…
//	}
//
// The control plane starts when the first test asks for it, so that the other
// tests of a package need no binaries, and stops when Main returns. It is
// shared: tests take a namespace each, and names of cluster-scoped objects
// (Sandboxes, SandboxTemplates) from Name.
package kubetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// shared is the control plane of this test binary, nil until it has started. once
// guards its start; the other fields are written inside it and read after it.
var shared struct {
	once sync.Once
	*ControlPlane
	err error
}

// Main runs the tests, stops the control plane if one was started, and returns
// the exit code. Goroutines that the tests leave behind fail the run. A Ctrl-C or
// SIGTERM ends the control plane too, which has a process group of its own. Call
// once.
func Main(m *testing.M) int {
	ctrllog.SetLogger(klog.NewKlogr())
	parallel()
	interrupted, forget := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	unattended := context.AfterFunc(interrupted, func() {
		shared.once.Do(func() {}) // waits for a start that is under way
		if shared.ControlPlane != nil {
			if err := shared.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, "kubetest: stopping the control plane:", err)
			}
		}
		os.Exit(1)
	})
	code := m.Run()
	unattended()
	forget()
	if shared.ControlPlane != nil {
		if err := shared.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "kubetest: stopping the control plane:", err)
			code = max(code, 1)
		}
	}
	klog.StopFlushDaemon()
	if code == 0 {
		runtime.GC() // client-go ends the goroutines that reload a transport's client certificate when the transport is collected
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "kubetest:", err)
			code = 1
		}
	}
	return code
}

// parallel lets more tests run at once than there are processors, unless -parallel
// says how many: tests with an API server wait more than they work.
func parallel() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(max(8, 2*runtime.NumCPU()))) // the flag is there: this is a test binary
	}
}

// Config returns a copy of an administrator's configuration, without client-side
// rate limits. It starts the control plane if need be, and ends the test if
// that fails.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	start(t)
	return rest.CopyConfig(shared.Config)
}

// KubeConfig returns the text of an administrator's kubeconfig, for programs. It starts the
// control plane if need be, and ends the test if that fails.
func KubeConfig(t testing.TB) []byte {
	t.Helper()
	start(t)
	return shared.KubeConfig
}

// Client returns an uncached client that knows Kubernetes' and Sandlane's kinds.
// It is safe for concurrent use.
func Client(t testing.TB) client.WithWatch {
	t.Helper()
	start(t)
	return shared.Client
}

// Scheme returns a new scheme with Kubernetes' and Sandlane's kinds.
func Scheme() *apiruntime.Scheme {
	s := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

// Namespace makes a namespace for this test and returns its name. It is left
// behind: it ends with the control plane.
func Namespace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: Name("test"), Labels: map[string]string{v1alpha1.LabelPools: v1alpha1.PoolsAllowed},
	}}
	if err := Client(t).Create(t.Context(), ns); err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	return ns.Name
}

// Name returns prefix with a random suffix: a valid name and sandbox ID that no
// other test has.
func Name(prefix string) string { return prefix + "-" + utilrand.String(10) }

// Eventually waits until ready returns nil, for what must happen and says nothing of how
// long it takes: a test that shares two processors with dozens of others must not fail
// because it was slow. A wait whose time is a promise is Within.
func Eventually(t testing.TB, what string, ready func() error) {
	t.Helper()
	Within(t, 2*time.Minute, what, ready)
}

// Within calls ready until it returns nil. Between calls it waits for 10 ms, and the
// longer the more it has waited already (see Pause). After limit it fails the test with
// what was waited for and ready's last error.
func Within(t testing.TB, limit time.Duration, what string, ready func() error) {
	t.Helper()
	deadline, first := time.After(limit), time.Now()
	for {
		began := time.Now()
		err := ready()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		case <-time.After(Pause(10*time.Millisecond, time.Since(began), began.Sub(first))):
		}
	}
}

// Pause is how long a test waits before it looks again, after a look that took so long
// and that began so long after the first one: four times the look, or a quarter of what
// was waited, but at least least and at most a quarter of a second. Dozens of tests wait
// at a time, and their looks would keep the processors from what is waited for.
func Pause(least, look, waited time.Duration) time.Duration {
	return max(least, min(max(4*look, waited/4), 250*time.Millisecond))
}

func start(t testing.TB) {
	t.Helper()
	shared.once.Do(func() {
		if err := startControlPlane(); err != nil {
			shared.err = errors.New("kubetest: no control plane: an earlier test says why")
			t.Fatal(err)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
}

func startControlPlane() (err error) {
	if shared.ControlPlane, err = Launch(); err != nil {
		return fmt.Errorf("kubetest: %w", err)
	}
	return nil
}
