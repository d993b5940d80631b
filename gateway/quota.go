package gateway

import "github.com/sandlane/sandlane/kubeclient"

// quota recognises ResourceQuotas in the API server's errors, for package sandboxes.
type quota struct{}

// Exceeded implements sandboxes.Quota.
func (quota) Exceeded(err error) bool { return kubeclient.QuotaExceeded(err) }
