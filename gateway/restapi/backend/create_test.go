package backend

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/pages"
)

// A create that gets no pod fails as docs/design/no-pod.md says.
func TestCreateErrorsAsDocumented(t *testing.T) {
	from := map[string]error{
		"ErrNoCapacity": routing.ErrNoCapacity, "NoStartError": &routing.NoStartError{Reason: "ErrImagePull"},
		"ErrUnavailable": routing.ErrUnavailable, "ErrInvalid": &routing.InvalidError{Reason: "spec.image: no spaces"},
		"ErrNotPermitted": routing.ErrNotPermitted, "ErrSandboxLimit": routing.ErrSandboxLimit,
		"ErrPoolNotFound": routing.ErrPoolNotFound, "ErrDraining": routing.ErrDraining, "ErrNotReady": activation.ErrNotReady,
		"ErrUnusable": routing.ErrUnusable, "ErrEnded": routing.ErrEnded, "ErrExists": routing.ErrExists,
		"ErrNotRestorable": routing.ErrNotRestorable, "ErrNoMember": routing.ErrNoMember,
	}
	to := map[string]error{"ErrNoCapacity": restapi.ErrNoCapacity, "ErrInvalid": restapi.ErrInvalid, "ErrQuota": restapi.ErrQuota, "NoStartError": restapi.ErrNoCapacity}
	for _, row := range pages.NoPod(t) {
		said := from[row["error"]]
		if said == nil {
			t.Fatalf("no-pod.md names an error that is not known here: %v", row)
		}
		said = fmt.Errorf("pod SECRET: %w", said)
		got := createError(said)
		if row["create"] == pages.None {
			if got != said { //nolint:errorlint // the very same error, not one that wraps it
				t.Errorf("%s: %v became %v, not passed on as it is", row["why"], said, got)
			}
			continue
		}
		if want := to[row["create"]]; want == nil || !errors.Is(got, want) {
			t.Errorf("%s: %v became %v, want %s", row["why"], said, got, row["create"])
		}
		var noStart *routing.NoStartError
		if said := errors.As(got, &noStart) && noStart.Reason == "ErrImagePull"; said != (row["create"] == "NoStartError") {
			t.Errorf("%s: the client is told that pods cannot start: %v", row["why"], said)
		}
		var invalid *restapi.InvalidError
		if errors.As(got, &invalid) && strings.Contains(invalid.Reason, "SECRET") {
			t.Errorf("%s: the client reads %q", row["why"], invalid.Reason)
		}
	}
}
