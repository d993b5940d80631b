package controlplane

import (
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/sandlane/sandlane/test/kubetest"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	os.Exit(kubetest.Main(m))
}
