package backend

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sandlane/sandlane/kubeclient/writes"
)

// refusedForGood reports whether the API server will not take the object of a create or
// an update later either. A 422 without causes is such an answer here, as that of a
// webhook: no test of a patch can have failed. A 401 is none: what it refuses is a token
// that is renewed, or is not known yet to an API server that has just started.
func refusedForGood(err error) bool {
	v := writes.Judge(err)
	return (v.Final() || v == writes.TestFailed) && !apierrors.IsUnauthorized(err)
}
