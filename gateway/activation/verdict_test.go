package activation

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// The outermost verdict of an error counts, and what the error is stays as it was.
func TestVerdicts(t *testing.T) {
	inner := fmt.Errorf("restore: %w", EndSandbox.With(io.EOF))
	for name, c := range map[string]struct {
		err  error
		want Verdict
	}{
		"none":     {io.EOF, TryLater},
		"wrapped":  {inner, EndSandbox},
		"replaced": {fmt.Errorf("ready: %w", FailRequest.With(inner)), FailRequest},
		"joined":   {TryLater.With(errors.Join(errors.New("the end cannot be written"), inner)), TryLater},
	} {
		if got := VerdictOf(c.err); got != c.want || !errors.Is(c.err, io.EOF) {
			t.Errorf("%s: verdict %d of %v", name, got, c.err)
		}
	}
	if err := EndSandbox.With(nil); err != nil {
		t.Errorf("nil with a verdict is %v", err)
	}
}
