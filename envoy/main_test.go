package envoy

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandlane/sandlane/test/cmodule"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		cmodule.Remove()
		os.Exit(code)
	}))
}
