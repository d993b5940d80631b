package pause

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/backoff"
	"github.com/sandlane/sandlane/gateway/agent"
	"github.com/sandlane/sandlane/kubeclient/jsonpatch"
)

// freezers order what a pause and a resume need of a pod's freezers: sandboxd's, which stops
// the sandbox's processes, and, on a node that has one, the node's, which stops all in the
// pod, sandboxd too, and cuts the connections to it.
//
// The node's order is written into the pod's annotations. No pause waits for the node:
//
//   - It is written only after sandboxd has stopped everything, which is all that a pause
//     promises; a pause is answered without it, and it follows when the controller has the
//     freeze repeated. So an order to freeze of this generation in the annotations says that
//     sandboxd has carried out its own.
//   - It is taken back before sandboxd is asked for anything. If the node had carried out its
//     last order before, sandboxd's answer is the proof that it has thawed the pod. If not, it
//     may still be about to freeze the pod, for the order that was taken back: a resume waits
//     until the node says that it has carried out the resume's own (settle). So does the
//     hibernation of a frozen sandbox.
//
// Each write tests the claim and what the annotations were, and none is made for an older
// generation than theirs. A resume writes its generation also if no order to freeze is there.
// So an order to freeze that was delayed never stops a sandbox that was resumed since, or the
// sandboxd of one whose files are asked for.
type freezers struct {
	sandboxd Orders
	api      client.Client // must not read from a cache
}

// Probe returns nil if a freeze can be expected to succeed.
func (f freezers) Probe(ctx context.Context, id string, pod *corev1.Pod, generation int64) error {
	pod, err := f.release(ctx, pod, generation)
	if err != nil {
		return err
	}
	return f.sandboxd.Probe(ctx, id, pod, generation)
}

// FreezeAll stops everything in the pod: the sandbox's processes, and by the node's freezer,
// if there is one, the rest.
func (f freezers) FreezeAll(ctx context.Context, id string, pod *corev1.Pod, generation int64) error {
	if err := f.FreezeProcesses(ctx, id, pod, generation); err != nil || !v1alpha1.HasNodeFreezer(pod) {
		return err
	}
	_, _, err := f.orderNode(ctx, pod, generation, true)
	return err
}

// FreezeProcesses stops the sandbox's processes. The node's freezer is left as it is if it is
// ordered for this generation already: another gateway has stopped all then.
func (f freezers) FreezeProcesses(ctx context.Context, id string, pod *corev1.Pod, generation int64) error {
	if v1alpha1.FreezeOrdered(pod) && orderedAt(pod) == generation {
		return nil
	}
	pod, err := f.release(ctx, pod, generation)
	if err != nil {
		return err
	}
	return f.sandboxd.Freeze(ctx, id, pod, generation)
}

// FreezeForFiles stops the sandbox's processes. sandboxd goes on and answers, as it must to
// send the sandbox's files: no order of an older generation stops it.
func (f freezers) FreezeForFiles(ctx context.Context, id string, pod *corev1.Pod, generation int64) error {
	return f.wakeAndSend(ctx, id, pod, generation, f.sandboxd.Freeze)
}

// Unfreeze lets everything in the pod run.
func (f freezers) Unfreeze(ctx context.Context, id string, pod *corev1.Pod, generation int64) error {
	return f.wakeAndSend(ctx, id, pod, generation, f.sandboxd.Unfreeze)
}

// wakeAndSend sends an order to sandboxd. When it returns nil, the node runs the pod and carries
// out no order to freeze it of an older generation any more.
func (f freezers) wakeAndSend(ctx context.Context, id string, pod *corev1.Pod, generation int64, send sendOrder) error {
	if !v1alpha1.HasNodeFreezer(pod) {
		return send(ctx, id, pod, generation)
	}
	ordered, settled, err := f.orderNode(ctx, pod, generation, false)
	if err != nil {
		return err
	}
	if err := send(ctx, id, ordered, generation); err != nil {
		return err
	}
	if settled {
		return nil
	}
	return f.settle(ctx, ordered)
}

// settle waits until the pod's node has carried out its last order.
func (f freezers) settle(ctx context.Context, pod *corev1.Pod) error {
	for delays := backoff.Doubling(2*time.Millisecond, 50*time.Millisecond); ; {
		live := &corev1.Pod{}
		err := f.api.Get(ctx, client.ObjectKeyFromObject(pod), live)
		switch {
		case err == nil && live.UID != pod.UID, apierrors.IsNotFound(err):
			return fmt.Errorf("await the node's freezer of pod %s: %w", pod.Name, agent.ErrPodGone)
		case err == nil && v1alpha1.NodeFreezerSettled(live):
			return nil
		case err != nil && ctx.Err() == nil: // says nothing about the freezer
			return fmt.Errorf("await the node's freezer of pod %s: %w", pod.Name, err)
		case !backoff.Sleep(ctx, delays.Step()):
			return fmt.Errorf("await the node's freezer of pod %s: %w: %w", pod.Name, agent.ErrNoAnswer, context.Cause(ctx))
		}
	}
}

// release takes an order to freeze back, if there is one, so that sandboxd can answer.
func (f freezers) release(ctx context.Context, pod *corev1.Pod, generation int64) (*corev1.Pod, error) {
	if pod.Annotations[v1alpha1.AnnotationFreeze] == "" {
		return pod, nil
	}
	pod, _, err := f.orderNode(ctx, pod, generation, false)
	return pod, err
}

// orderNode writes an order for the node's freezer, if it is not written already, and returns
// the pod as it is then, and whether the node had carried out all that was ordered until the
// write. It returns agent.ErrSuperseded if an order of a later generation is there, and
// agent.ErrPodGone if the pod does not run with this claim any more.
func (f freezers) orderNode(ctx context.Context, pod *corev1.Pod, generation int64, freeze bool) (ordered *corev1.Pod, settled bool, err error) {
	wrap := func(err error) error {
		return fmt.Errorf("order the node's freezer of pod %s: %w", pod.Name, err)
	}
	claim := pod.Annotations[v1alpha1.AnnotationClaim]
	for range nodeTries {
		switch last := orderedAt(pod); {
		case last > generation:
			return nil, false, wrap(agent.ErrSuperseded)
		case last == generation && freeze == (pod.Annotations[v1alpha1.AnnotationFreeze] != ""):
			return pod, v1alpha1.NodeFreezerSettled(pod), nil
		}
		written := &corev1.Pod{}
		written.Namespace, written.Name = pod.Namespace, pod.Name
		err := f.api.Patch(ctx, written, nodeOrder(pod, generation, freeze).Build())
		switch {
		case err == nil:
			return written, v1alpha1.NodeFreezerSettled(pod), nil
		case !jsonpatch.Refused(err):
			return nil, false, wrap(err)
		}
		// Another gateway's order has come first, or the pod is not the sandbox's any more.
		live := &corev1.Pod{}
		err = f.api.Get(ctx, client.ObjectKeyFromObject(pod), live)
		switch {
		case apierrors.IsNotFound(err):
			return nil, false, wrap(agent.ErrPodGone)
		case err != nil:
			return nil, false, wrap(err)
		case live.UID != pod.UID, live.Annotations[v1alpha1.AnnotationClaim] != claim, v1alpha1.PhaseOf(live) != v1alpha1.PodRunning:
			return nil, false, wrap(agent.ErrPodGone)
		}
		pod = live
	}
	return nil, false, wrap(agent.ErrRouteMoved)
}

// nodeTries is how many orders of other gateways may come before this one's.
const nodeTries = 3

// nodeOrder is the write of an order, if the pod is as it was read.
func nodeOrder(pod *corev1.Pod, generation int64, freeze bool) jsonpatch.Patch {
	claim, ordered := pod.Annotations[v1alpha1.AnnotationClaim], pod.Annotations[v1alpha1.AnnotationFreeze]
	p := jsonpatch.For(pod.UID).
		Test(jsonpatch.Claim, claim).
		Test(jsonpatch.Phase, v1alpha1.PodRunning).
		Test(pathFreeze, orNil(ordered)).
		Test(pathFreezeGeneration, orNil(pod.Annotations[v1alpha1.AnnotationFreezeGeneration])).
		Set(pathFreezeGeneration, strconv.FormatInt(generation, 10))
	switch {
	case freeze:
		return p.Set(pathFreeze, claim)
	case ordered != "":
		return p.Remove(pathFreeze)
	}
	return p
}

var (
	pathFreeze           = jsonpatch.Annotation(v1alpha1.AnnotationFreeze)
	pathFreezeGeneration = jsonpatch.Annotation(v1alpha1.AnnotationFreezeGeneration)
)

// orNil is the value that an annotation must have, or nil for none.
func orNil(value string) any {
	if value == "" {
		return nil
	}
	return value
}

// orderedAt is the generation of the last order for the node's freezer; 0 without one.
func orderedAt(pod *corev1.Pod) int64 {
	n, err := strconv.ParseInt(pod.Annotations[v1alpha1.AnnotationFreezeGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
