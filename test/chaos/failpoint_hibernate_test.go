package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// The gateway that makes a sandbox hibernate, or resumes it, is killed at each step of that,
// and the controller before it stops the pod that was given up. The next process completes
// what is written: the sandbox hibernates with its files, then runs in another pod with them,
// and its former pod is deleted.
func TestKilledAtEachStepOfAHibernation(t *testing.T) {
	h := newHibernating(t)
	gateways := shared.Up.Gateways
	for n, step := range []struct{ process, point, op string }{
		{"gateway", "snapshots/pausing", hibernate}, {"gateway", "pause/kept", hibernate}, {"gateway", "pause/given-up", hibernate},
		{"controller", "sandbox/giving-up", hibernate},
		{"gateway", "snapshots/restored", resume}, {"gateway", "snapshots/initialised", resume},
	} {
		t.Run(fmt.Sprintf("%d-%s", n, strings.ReplaceAll(step.point, "/", "-")), func(t *testing.T) {
			h.t = t
			i := n % len(gateways)
			by, other := gateways[i], gateways[(i+1)%len(gateways)]
			s := h.made(other)
			if step.op == resume {
				h.want(other, hibernate, s.id, http.StatusNoContent)
				h.hibernates(s)
			}
			if step.process == "controller" {
				former := controllerPID(t, 0)
				arm(t, "controller", step.point, "kill")
				h.want(by, step.op, s.id, http.StatusNoContent)
				waitHit(t, "controller", step.point)
				controllerPID(t, former)
			} else {
				h.killedDuring(i, step.point, step.op, s)
			}
			if step.op == hibernate {
				h.hibernates(s)
				for _, g := range gateways {
					h.silent(g, s.id)
				}
			}
			h.resumed(other, s)
			h.runs(s, another)
			h.kill(other, s)
		})
	}
	h.t = t
	t.Run("6-checkpoints-deleted", func(t *testing.T) {
		h.t = t
		h.killedAtTheDeletion(gateways[0])
	})
	h.t = t
	h.nothingLeft()
}

// killedAtTheDeletion kills the controller between the deletion of a checkpoint's data and
// that of the Checkpoint object: the next controller deletes the object.
func (h *hibernating) killedAtTheDeletion(g stack.Gateway) {
	t := h.t
	s := h.made(g)
	h.want(g, hibernate, s.id, http.StatusNoContent)
	now, _ := shared.Sandbox(t, s.id)
	cp := &v1alpha1.Checkpoint{}
	cp.Namespace, cp.Name = h.ns, now.Spec.Restore.Checkpoint
	former := controllerPID(t, 0)
	arm(t, "controller", "checkpoints/deleted", "kill") // before the resume, after which the controller deletes it by itself
	h.resumed(g, s)
	if err := client.IgnoreNotFound(shared.Client.Delete(t.Context(), cp)); err != nil {
		t.Fatal(err)
	}
	waitHit(t, "controller", "checkpoints/deleted")
	controllerPID(t, former)
	shared.Eventually(t, time.Minute, "checkpoint "+cp.Name+" to go", func() (bool, string) {
		err := shared.Client.Get(t.Context(), client.ObjectKeyFromObject(cp), cp)
		return apierrors.IsNotFound(err), fmt.Sprintf("%v, %+v", err, cp.Status)
	})
	h.runs(s, another)
	h.kill(g, s)
}

// killedDuring sends a request to a gateway, which is killed at the point, and waits until
// another gateway runs in its place. A gateway that is slow with a pause may find that another
// one, which the controller has asked, has done it: then that one is killed.
func (h *hibernating) killedDuring(gateway int, point, op string, s *sleeper) {
	h.t.Helper()
	gateways := shared.Up.Gateways
	former := make([]int, len(gateways))
	for i, g := range gateways {
		former[i] = gatewayPID(h.t, i, 0)
		arm(h.t, g.Name, point, "kill")
	}
	a, err := h.rest(gateways[gateway], op, s.id)
	killed := waitHitOfAny(h.t, gateways, point)
	for _, g := range gateways {
		disarm(h.t, g.Name, point)
	}
	if killed == gateway && err == nil && a.Status < 300 {
		h.t.Errorf("it is answered with %v", a)
	}
	gatewayPID(h.t, killed, former[killed])
}

// A gateway, or the controller, is held at a step, as may happen on a busy machine, while
// other processes go on: what these have done first counts.
func TestHeldAtEachStepOfAHibernation(t *testing.T) {
	h := newHibernating(t)
	by, other := shared.Up.Gateways[0], shared.Up.Gateways[1]
	for _, step := range []struct {
		process, point, op string
		meanwhile          func(s *sleeper)
		status             int // the status of its answer in the end
		answers            which
		ended              bool
	}{
		// While the files are not kept, the pod is not given up, so that they are not lost.
		{by.Name, "snapshots/pausing", hibernate, func(s *sleeper) { h.kill(other, s) }, http.StatusNotFound, another, true},
		// A resume at another gateway completes the pause first.
		{by.Name, "pause/kept", hibernate, func(s *sleeper) { h.resumed(other, s); h.runs(s, another) }, http.StatusNoContent, another, false},
		{by.Name, "pause/given-up", hibernate, func(s *sleeper) { h.hibernates(s); h.resumed(other, s); h.runs(s, another) }, http.StatusNoContent, another, false},
		{"controller", "sandbox/giving-up", hibernate, func(s *sleeper) { h.resumed(other, s) }, http.StatusNoContent, another, false},
		// Another gateway continues the restore.
		{by.Name, "snapshots/restored", resume, func(s *sleeper) { h.resumed(other, s); h.runs(s, another) }, http.StatusCreated, another, false},
		{by.Name, "snapshots/initialised", resume, func(s *sleeper) { h.resumed(other, s); h.runs(s, another) }, http.StatusCreated, another, false},
	} {
		t.Run(strings.ReplaceAll(step.point, "/", "-"), func(t *testing.T) {
			h.t = t
			s := h.made(other)
			if step.op == resume {
				h.want(other, hibernate, s.id, http.StatusNoContent)
				h.hibernates(s)
			}
			arm(t, step.process, step.point, "hold")
			answered := make(chan held, 1)
			go func() {
				a, err := h.rest(by, step.op, s.id)
				answered <- held{a, err}
			}()
			waitHeld(t, step.process, step.point)
			step.meanwhile(s)
			disarm(t, step.process, step.point)
			got := <-answered
			if got.err != nil || got.Status != step.status {
				t.Errorf("it is answered with %v, %v, want %d", got.Answer, got.err, step.status)
			}
			if step.answers == another || step.ended {
				h.gaveUp(s)
			}
			if step.ended {
				return
			}
			h.runs(s, step.answers)
			h.kill(other, s)
		})
	}
	h.t = t
	h.nothingLeft()
}

// held is the answer to the request that was held.
type held struct {
	stack.Answer
	err error
}
