package gateway

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// quota recognises ResourceQuotas in the API server's errors, for package sandboxes.
type quota struct{}

// Exceeded implements sandboxes.Quota. The API server answers a write beyond a
// ResourceQuota with the same status as one that this gateway has no right to.
func (quota) Exceeded(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}
