package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/sandlane/sandlane/sandboxd/access"
)

// The errors of a gateway's orders.
var (
	errNoFreezer = errors.New("this sandbox cannot be frozen: sandboxd is not below its own first process of a container")
	errOlder     = errors.New("a newer order was carried out already")
	errNotInit   = errors.New("the sandbox is not initialised")
)

// order serves an order of a gateway. Before /init the sandbox has no processes: a freeze is
// refused then (412), and of an unfreeze only the number is noted (202).
func (s *Server) order(caller *caller, name string, carryOut func(context.Context, int64) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		number, ok := caller.Order(w, r, name)
		if !ok {
			return
		}
		initialised := caller.Initialised()
		err := errNotInit
		if initialised || name != "freeze" {
			err = carryOut(r.Context(), number)
		}
		switch {
		case err == nil && !initialised:
			w.WriteHeader(http.StatusAccepted)
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
		case errors.Is(err, errNotInit):
			access.Error(w, http.StatusPreconditionFailed, err.Error())
		case errors.Is(err, errNoFreezer):
			access.Error(w, http.StatusNotImplemented, err.Error())
		case errors.Is(err, errOlder):
			access.Error(w, http.StatusConflict, err.Error())
		case errors.Is(err, errStill):
			access.Error(w, http.StatusLocked, err.Error())
		default:
			_, _ = fmt.Fprintf(s.options.Log, "sandboxd: /%s: %v\n", name, err)
			access.Error(w, http.StatusInternalServerError, err.Error())
		}
	}
}
