package local

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

const helperEnv = "SANDLANE_LOCAL_TEST"

// The test binary is also `up`, and the subcommands that `up` starts.
func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	if os.Getenv(helperEnv) == "" {
		goleak.VerifyTestMain(collecting{m})
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := helper(ctx, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// collecting collects garbage after the tests: client-go ends the goroutines that
// reload a transport's client certificate when the transport itself is collected.
type collecting struct{ m *testing.M }

func (c collecting) Run() int {
	defer runtime.GC()
	return c.m.Run()
}

func helper(ctx context.Context, command string, args []string) error {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	values := map[string]*string{}
	for _, name := range []string{
		"kubeconfig", "state", "subnet", "isolation", "images", "helpers", "name", "metrics-address", "system-namespace", "key-namespace", "run-dir", "first-request-pool",
		"lease-duration", "lease-renew-every", "lease-grace", "address-cooldown", "short-address-cooldown", "sandboxd-image", "gateways", "drain-delay", "domain", "leader-elect", "cluster-id", "checkpoint-dir", "recycle-after",
		"control-tls-cert", "control-tls-key", "control-tls-ca", "control-tls-peer", "fast-path", "fast-path-folder", "max-streams",
	} {
		values[name] = flags.String(name, "", "")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch command {
	case "up":
		n, err := strconv.Atoi(*values["gateways"])
		if err != nil {
			return err
		}
		return helperUp(ctx, *values["state"], n)
	case "node":
		return helperNode(ctx, *values["kubeconfig"], *values["name"])
	case "controller", "gateway":
		if os.Getenv("FAIL") == command {
			return errors.New("told to fail")
		}
		server := &http.Server{Addr: *values["metrics-address"], Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
	return fmt.Errorf("unknown helper %s", command)
}

// helperUp is a small `sandlane up`.
func helperUp(ctx context.Context, stateDir string, gateways int) error {
	report := NewReporter()
	err := Up(ctx, Options{
		StateDir: stateDir, Gateways: gateways, Isolation: IsolationNone, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		NewAPIKey: func(context.Context, *rest.Config) (string, error) { return "e2b_0123", nil },
		Helpers: func(dir string) error {
			return errors.Join(writeFile(dir+"/echo", []byte("echo"), 0o700), writeFile(dir+"/sandboxd", []byte("sandboxd"), 0o700))
		},
		Progress: report.Progress,
		Ready:    report.Ready,
	})
	if err != nil {
		report.Failed(err)
	}
	return err
}

// helperNode registers a node that is Ready and runs nothing.
func helperNode(ctx context.Context, kubeconfig, name string) error {
	_, api, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := ignoreExists(api.Create(ctx, n)); err != nil {
		return err
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := api.Status().Update(ctx, n); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}
