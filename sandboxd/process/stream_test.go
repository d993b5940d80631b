package process

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

// unaware is a context whose deadline has passed a moment ago, which it does not
// say yet.
type unaware struct{ context.Context }

func (unaware) Deadline() (time.Time, bool) { return time.Now(), true }

// A process that was killed by the deadline of its request did not end by itself,
// whichever of the two is noticed first.
func TestTimeoutIsNoExit(t *testing.T) {
	for _, c := range []struct {
		what string
		ctx  context.Context
		code connect.Code
	}{
		{"killed by the deadline", unaware{t.Context()}, connect.CodeDeadlineExceeded},
		{"ended by itself", t.Context(), 0},
	} {
		p := &proc{pid: 1}
		p.hub.end(&processpb.ProcessEvent{})
		err := new(Service).follow(c.ctx, p, p.hub.subscribe(), time.Minute, func(*processpb.ProcessEvent) error { return nil })
		if c.code == 0 && err != nil || c.code != 0 && connect.CodeOf(err) != c.code {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
