package backend

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/test/pages"
)

// errQuota stands for the API server's word that a ResourceQuota is used up.
var errQuota = errors.New("exceeded quota")

type fakeQuota struct{}

func (fakeQuota) Exceeded(err error) bool { return errors.Is(err, errQuota) }

// A create that gets no pod fails as docs/design/no-pod.md says.
func TestCreateErrorsAsDocumented(t *testing.T) {
	from := map[string]error{
		"ErrNoCapacity": activation.ErrNoCapacity, "NoStartError": &activation.NoStartError{Reason: "ErrImagePull"},
		"ErrUnavailable": activation.ErrUnavailable, "ErrInvalid": activation.ErrInvalid, "ErrForbidden": activation.ErrForbidden,
		"quota":           fmt.Errorf("%w: %w", activation.ErrForbidden, errQuota),
		"ErrPoolNotFound": activation.ErrPoolNotFound, "ErrShutdown": activation.ErrShutdown, "ErrNotReady": activation.ErrNotReady,
		"ErrUnusable": activation.ErrUnusable, "ErrEnded": activation.ErrEnded, "ErrExists": activation.ErrExists,
		"ErrNotRestorable": activation.ErrNotRestorable, "ErrNoMember": activation.ErrNoMember,
	}
	to := map[string]error{"ErrNoCapacity": restapi.ErrNoCapacity, "ErrInvalid": restapi.ErrInvalid, "ErrQuota": restapi.ErrQuota, "NoStartError": restapi.ErrNoCapacity}
	x := &Backend{quota: fakeQuota{}}
	for _, row := range pages.NoPod(t) {
		said := from[row["activation"]]
		if said == nil {
			t.Fatalf("no-pod.md names an error that is not known here: %v", row)
		}
		said = fmt.Errorf("pod SECRET: %w", said)
		got := x.createError(said)
		if row["create"] == pages.None {
			if got != said { //nolint:errorlint // the very same error, not one that wraps it
				t.Errorf("%s: %v became %v, not passed on as it is", row["why"], said, got)
			}
			continue
		}
		if want := to[row["create"]]; want == nil || !errors.Is(got, want) {
			t.Errorf("%s: %v became %v, want %s", row["why"], said, got, row["create"])
		}
		var noStart *restapi.NoStartError
		if said := errors.As(got, &noStart) && noStart.Reason == "ErrImagePull"; said != (row["create"] == "NoStartError") {
			t.Errorf("%s: the client is told that pods cannot start: %v", row["why"], said)
		}
		var invalid *restapi.InvalidError
		if errors.As(got, &invalid) && strings.Contains(invalid.Reason, "SECRET") {
			t.Errorf("%s: the client reads %q", row["why"], invalid.Reason)
		}
	}
}
