package kubeclient

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// QuotaExceeded reports whether the API server refused a write because a ResourceQuota of
// its namespace is used up. The server answers it with the same status as a write that the
// caller has no right to; only its words differ (admission plugin ResourceQuota).
func QuotaExceeded(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}
