package controlplane

import (
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/test/kubetest"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	ctrllog.SetLogger(logr.Discard())
	os.Exit(kubetest.Main(m))
}
