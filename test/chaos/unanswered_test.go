package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// unanswered is how long a request may be without an answer: a gateway answers after 55 s at
// the latest, and if it stands still then, Envoy answers itself 60 s after the gateway asked
// for time, for which it had 2 s. Envoy notices within 30 s that a pod has vanished, and a pod
// that was given up while it was frozen is stopped as soon as the controller works.
const unanswered = 64 * time.Second

// watch fails the test if the request is not answered in time, and keeps what shows where it
// waits. The caller must call stop when the request has ended.
func (l *load) watch(g stack.Gateway, id string) (stop func()) {
	over := make(chan struct{})
	t := time.AfterFunc(unanswered, func() {
		defer close(over)
		if l.ctx.Err() == nil {
			l.t.Errorf("%s for %s: no answer in %v; %s", g.Name, id, unanswered, l.whereItWaits(g, id))
		}
	})
	return func() {
		if !t.Stop() {
			<-over
		}
	}
}

// whereItWaits tells whether the gateway or a pod has the request, and writes into a file
// which connections there are and what the gateway's goroutines do. To show them the gateway
// ends; the test has failed already.
func (l *load) whereItWaits(g stack.Gateway, id string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), 20*time.Second)
	defer cancel()
	inFlight, _, err := g.Metric(ctx, "sandlane_extproc_in_flight")
	parked, _, err2 := g.Metric(ctx, "sandlane_extproc_parked")
	s := &v1alpha1.Sandbox{}
	err3 := l.stack.Client.Get(ctx, client.ObjectKey{Name: id}, s)
	now, err4 := json.Marshal(s)
	text := fmt.Sprintf("in the gateway %g requests, %g parked (%v, %v); the sandbox: %s (%v, %v)", inFlight, parked, err, err2, now, err3, err4)

	var pods corev1.PodList
	err = l.stack.Client.List(ctx, &pods, client.MatchingLabels{v1alpha1.LabelSandboxID: id})
	for _, pod := range pods.Items {
		text += fmt.Sprintf("\npod %s %s of claim %s at %s, %s, deleted %v", pod.Name, pod.UID, pod.Annotations[v1alpha1.AnnotationClaim], pod.Status.PodIP, v1alpha1.PhaseOf(&pod), pod.DeletionTimestamp)
	}
	text += fmt.Sprintf("\n%d pods (%v)", len(pods.Items), err)

	sockets, err := exec.CommandContext(ctx, "ss", "-tnpoi").CombinedOutput()
	if err != nil {
		sockets = fmt.Appendf(sockets, "ss: %v", err)
	}
	log, err := l.goroutines(ctx, g.Name)
	if err != nil {
		log = fmt.Append(log, err)
	}
	file := filepath.Join(os.TempDir(), fmt.Sprintf("sandlane-unanswered-%s-%d.txt", g.Name, time.Now().UnixMilli()))
	err = os.WriteFile(file, fmt.Appendf(nil, "%s\n\n%s\n\n%s", text, sockets, log[max(0, len(log)-4<<20):]), 0o600)
	return fmt.Sprintf("%s; more in %s (%v)", text, file, err)
}

// goroutines ends a gateway with SIGQUIT, and returns its log with the goroutines that it had.
func (l *load) goroutines(ctx context.Context, gateway string) (log []byte, err error) {
	now := &stack.Stack{State: l.stack.State}
	if err := now.Reload(); err != nil {
		return nil, err
	}
	if err := signalOurs(pidIn(now.Up, gateway), "gateway", syscall.SIGQUIT); err != nil {
		return nil, err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		log, err = os.ReadFile(filepath.Join(l.stack.State, "logs", gateway+".log"))
		if err != nil || bytes.Contains(log, []byte("\ngoroutine 1 [")) {
			return log, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return log, ctx.Err()
		}
	}
}
