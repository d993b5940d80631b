package conformance

import (
	"testing"

	"github.com/sandlane/sandlane/conformance/sdk"
)

// Only an SDK's own report of 501 is a refusal; the number elsewhere in an error is not.
func TestResultsOfSDKs(t *testing.T) {
	for text, want := range map[string]Verdict{
		"":                                     Works,
		"SandboxException: 501: not supported": Refused,
		"SandboxError: 501: not supported":     Refused,
		"AssertionError: got 501, want 200":    Wrong,
		"SandboxException: 500: see 501: x":    Wrong,
	} {
		got := resultOf(sdk.SDK{Language: "js", Version: "2.51.0"}, sdk.Result{Name: "x", OK: text == "", Error: text})
		if got.Verdict != want || got.Why != text || got.With != "js 2.51.0" {
			t.Errorf("%q is %+v, want %s", text, got, want)
		}
	}
}
