// Package byname tests what must hold of egress by name while its processes are killed, stand
// still and see late what happens, and addresses are used again at once: no request leaves
// with another sandbox's credential, and no connection outlives its claim.
//
// The egress processes, their API server and the fences that they are asked for are real. The
// pods are addresses of the loopback interface, whose sandboxes this program is; it also does
// what the controller does with them, and is the internet, which judges what it is asked
// (judge_test.go).
package byname

import (
	"os"
	"testing"

	"github.com/sandlane/sandlane/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }
