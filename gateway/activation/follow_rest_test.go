package activation

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/bubble"
)

// startingPod answers reads of a sandbox whose pod starts, and counts them.
type startingPod struct {
	client.Client
	looks atomic.Int64
}

func (c *startingPod) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *v1alpha1.Sandbox:
		c.looks.Add(1)
		o.Name = "s"
		o.Spec = v1alpha1.SandboxSpec{Namespace: "n", Pool: "p", Binding: &v1alpha1.Binding{ClaimID: "c", PodName: "pod", PodUID: "u"}}
	case *corev1.Pod:
		o.Namespace, o.Name, o.UID = "n", "pod", "u"
		o.Labels = map[string]string{v1alpha1.LabelPhase: string(v1alpha1.PodStarting), v1alpha1.LabelSandboxID: "s"}
		o.Annotations = map[string]string{v1alpha1.AnnotationClaim: "c"}
	}
	return nil
}

// A follower of a pod that is starting goes on at once when the index sees a change; without
// a change it reads the API server less and less often.
func TestAStartIsNotPolled(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := &startingPod{}
		a := New(Options{Client: c, Cache: routecache.New(0)})
		done := make(chan error, 1)
		go func() {
			done <- a.Activate(t.Context(), routing.Request{ID: "s", Namespace: "n", Pool: "p", Deadline: time.Now().Add(time.Minute)})
		}()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n := c.looks.Load(); n > 8 { // at 0, 1, 3, 7, 15, 23 s
			t.Errorf("%d looks in half a minute", n)
		}
		before := c.looks.Load()
		a.NoteChange("s")
		synctest.Wait()
		if n := c.looks.Load(); n != before+1 {
			t.Errorf("%d looks after the index was woken, want 1", n-before)
		}
		time.Sleep(followAfter)
		synctest.Wait()
		if n := c.looks.Load(); n != before+2 {
			t.Errorf("%d looks a second later, want 2: a change begins the waits anew", n-before)
		}
		if err := <-done; !errors.Is(err, ErrNotReady) {
			t.Errorf("at the deadline: %v", err)
		}
		a.Shutdown()
	})
}
