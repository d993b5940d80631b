package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// After `end` every answer is the not-found 502 while the record stays; after
// `kubectl delete` the ID is forgotten and a new request makes a new sandbox in
// another pod. The requests that are under way meanwhile never see another
// process than the one bound at the time.
func TestEndAndDelete(t *testing.T) {
	t.Parallel()
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 3)
	req := stack.Request{ID: "ending", Pool: ns + "/pool"}
	old := shared.Touch(t, "ending", req.Pool)

	hammer := newHammer(t, req)
	out, err := shared.Run(t.Context(), "end", "ending")
	if err != nil {
		t.Fatalf("sandlane end: %v\n%s", err, out)
	}
	ended := time.Now()
	shared.Eventually(t, 10*time.Second, "the phase Ended", func() (bool, string) {
		sb, _ := shared.Sandbox(t, "ending")
		return sb.Status.Phase == v1alpha1.SandboxEnded, fmt.Sprint(sb.Status)
	})
	for range 20 {
		wantError(t, shared.Do(t, nil, req), 502, "not found")
	}
	sb, found := shared.Sandbox(t, "ending")
	if !found || sb.Spec.End == nil || sb.Spec.End.Reason != v1alpha1.EndReleased || sb.Status.FencedAt == nil || sb.Status.Address == "" {
		t.Errorf("the record after the end: %+v", sb)
	}
	if out, err := shared.Run(t.Context(), "end", "ending"); err == nil && !strings.Contains(out, "already") {
		t.Errorf("a second end: %v, %s", err, out)
	}
	for _, a := range hammer.stop() {
		switch {
		case a.answer.Echo != nil && a.answer.Echo.PodUID != old.PodUID:
			t.Errorf("pod %s answered for the sandbox in pod %s", a.answer.Echo.Pod, old.Pod)
		case a.answer.Echo != nil && a.began.After(ended.Add(time.Second)):
			t.Errorf("the old pod answered %v after the end", a.began.Sub(ended))
		case a.answer.Echo == nil && a.answer.Status != 502:
			t.Errorf("while ending: %v", a.answer)
		}
	}

	if out, err := shared.Run(t.Context(), "kubectl", "delete", "sandbox", "ending", "--timeout=30s"); err != nil {
		t.Fatalf("kubectl delete: %v\n%s", err, out)
	}
	var fresh stack.Echo
	shared.Eventually(t, 10*time.Second, "a new sandbox of that name", func() (bool, string) {
		a := shared.Do(t, nil, req)
		if a.Echo == nil { // the gateway hears of the deletion a moment after kubectl
			wantError(t, a, 502, "not found")
			return false, fmt.Sprint(a)
		}
		fresh = *a.Echo
		return true, ""
	})
	if fresh.PodUID == old.PodUID || fresh.Process == old.Process {
		t.Errorf("the new sandbox is in the old pod %s", old.Pod)
	}
}

// A running sandbox that is deleted is ended first; answers come from the old
// pod before, and from a new pod or not at all afterwards.
func TestDeleteWhileRunning(t *testing.T) {
	t.Parallel()
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 3)
	req := stack.Request{ID: "deleting", Pool: ns + "/pool"}
	old := shared.Touch(t, "deleting", req.Pool)
	hammer := newHammer(t, req)
	if out, err := shared.Run(t.Context(), "kubectl", "delete", "sandbox", "deleting", "--timeout=30s"); err != nil {
		t.Fatalf("kubectl delete: %v\n%s", err, out)
	}
	gone := time.Now()
	shared.Eventually(t, 20*time.Second, "a new sandbox under the ID", func() (bool, string) {
		a := shared.Do(t, nil, req)
		return a.Echo != nil && a.Echo.PodUID != old.PodUID, a.String()
	})
	fromOld, fromNew := 0, 0
	for _, a := range hammer.stop() {
		switch {
		case a.answer.Echo == nil:
		case a.answer.Echo.PodUID == old.PodUID:
			if fromOld++; a.began.After(gone) {
				t.Errorf("the old pod answered a request %v after the sandbox was gone", a.began.Sub(gone))
			}
		default:
			fromNew++
		}
	}
	t.Logf("%d answers from the old pod, %d from the new", fromOld, fromNew)
	if fromOld == 0 {
		t.Error("the test saw no answer from the old pod, so it proved nothing")
	}
}

// A pod that died answers 502, its route goes, and the sandbox says why.
func TestPodDies(t *testing.T) {
	t.Parallel()
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 2)
	req := stack.Request{ID: "dying", Pool: ns + "/pool"}
	old := shared.Touch(t, "dying", req.Pool)
	zero := int64(0)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: old.Pod}}
	if err := shared.Client.Delete(t.Context(), pod, &client.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, 10*time.Second, "502 for a sandbox whose pod is gone", func() (bool, string) {
		a := shared.Do(t, nil, req)
		if a.Echo != nil && a.Echo.PodUID != old.PodUID {
			t.Fatalf("pod %s answered for a sandbox whose pod is gone", a.Echo.Pod)
		}
		return a.Status == 502 && strings.Contains(string(a.Body), "not found"), a.String()
	})
	shared.Eventually(t, 10*time.Second, "the sandbox to have ended with a reason", func() (bool, string) {
		sb, _ := shared.Sandbox(t, "dying")
		return sb.Status.Phase == v1alpha1.SandboxEnded && sb.Spec.End.Reason == v1alpha1.EndFailed && sb.Spec.End.Message != "", fmt.Sprintf("%+v %+v", sb.Spec.End, sb.Status)
	})
	shared.WaitIdle(t, ns, "pool", 2)
}

// hammer sends one request after the other until it is stopped.
type hammer struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	seen   []timed
}

type timed struct {
	began  time.Time
	answer stack.Answer
}

func newHammer(t *testing.T, r stack.Request) *hammer {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	h := &hammer{cancel: cancel}
	h.done.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			a, err := shared.Try(ctx, nil, r)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				t.Errorf("request for %s: %v", r.ID, err)
				return
			}
			h.seen = append(h.seen, timed{began, a})
		}
	})
	return h
}

// stop ends the hammering and returns every answer.
func (h *hammer) stop() []timed {
	h.cancel()
	h.done.Wait()
	return h.seen
}
