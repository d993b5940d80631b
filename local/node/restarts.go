package node

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

const (
	// restartPause, restartPauseMax and restartCalm shape the pauses between starts
	// of a container: none before the second, then a second, doubling up to a
	// minute, from the beginning after ten minutes of running. A kubelet's are
	// ten times as long; here a person waits.
	restartPause    = time.Second
	restartPauseMax = time.Minute
	restartCalm     = 10 * time.Minute
)

// restarts counts the starts of a container; the zero value is of one that has not
// been started.
type restarts struct{ pauses *wait.Backoff }

// after returns the pause before the next start of what ran for d.
func (r *restarts) after(d time.Duration) time.Duration {
	if r.pauses == nil || d >= restartCalm {
		r.pauses = backoff.Doubling(restartPause, restartPauseMax)
		return 0
	}
	return r.pauses.Step()
}
