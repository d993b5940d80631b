package sandbox

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool"
)

// sweeper ends claims that no sandbox owns. It reads the API server, but of the
// suspects alone, which the looks of the Reconciler find in the cache; a new
// leader's first looks find all there are. It runs on the leader; one goroutine
// uses it.
//
// A claimed pod that no Sandbox names, or only one that is Ended, in two live
// looks a minute apart, is stopped and fenced; so is a claim whose pod and
// Sandbox were both removed by force. This is what lets such a pod's finalizer
// go. Only what the cache shows to be so is looked at alive (suspects): whether a
// claim has an owner depends on the pods that name an ID and on the Sandbox of
// that ID, and each change of those is a look at the ID.
type sweeper struct {
	r *Reconciler
	// begun: what the ledger was loaded with has been compared with the cache.
	begun bool
	// seen are the claims that the last sweep found without an owner.
	seen map[string]struct{}
}

// Start sweeps until ctx is done.
func (w *sweeper) Start(ctx context.Context) error {
	ticker := time.NewTicker(w.r.SweepInterval)
	defer ticker.Stop()
	for {
		if err := w.sweep(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "the sweep failed; it is tried again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// NeedLeaderElection is true: only the leader ends claims.
func (w *sweeper) NeedLeaderElection() bool { return true }

// stray is a claim without an owner. pod is nil if there is none any more.
type stray struct {
	claim, address string
	pod            *corev1.Pod
}

// sweep ends the strays of this sweep that the one before found too.
func (w *sweeper) sweep(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	strays, err := w.find(ctx)
	if err != nil {
		return err // what the last sweep saw stays: the next two must agree anyway
	}
	before := w.seen
	w.seen = make(map[string]struct{}, len(strays))
	for _, s := range strays {
		w.seen[s.claim] = struct{}{}
		if _, twice := before[s.claim]; !twice {
			continue
		}
		if err := w.release(ctx, s); err != nil {
			log.FromContext(ctx).Error(err, "ending a claim that no sandbox owns", "claim", s.claim)
			continue
		}
		w.r.Metrics.swept()
	}
	return nil
}

// begin suspects the claims that the ledger was loaded with and whose Sandbox, and
// pod perhaps, went before the watches began: no look is asked for by them.
func (w *sweeper) begin(ctx context.Context) error {
	if w.begun || !w.r.Ledger.Loaded() {
		return nil
	}
	for _, held := range w.r.Ledger.Unfenced() {
		err := w.r.Client.Get(ctx, client.ObjectKey{Name: held.SandboxID}, &v1alpha1.Sandbox{}, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading sandbox %s: %w", held.SandboxID, err)
		}
		if err != nil {
			w.r.suspects.set(held.SandboxID, true)
		}
	}
	w.begun = true
	return nil
}

// find looks at the suspects alive, and clears those that have no stray.
func (w *sweeper) find(ctx context.Context) ([]stray, error) {
	var all []stray
	for _, id := range w.r.suspects.list() {
		s, pods, err := w.readClaim(ctx, id)
		if err != nil {
			return nil, err
		}
		strays := w.r.strays(id, s, pods)
		if len(strays) == 0 {
			w.r.suspects.set(id, false)
		}
		all = append(all, strays...)
	}
	return all, nil
}

// readClaim reads the Sandbox, nil if there is none, and the pods that name it. Pods
// first: a claim is written with or after its binding, but for fresh IDs, where
// both are on their way at once; that is what the second look is for.
func (w *sweeper) readClaim(ctx context.Context, id string) (*v1alpha1.Sandbox, []corev1.Pod, error) {
	with := client.ListOption(client.MatchingLabels{v1alpha1.LabelSandboxID: id})
	if id == noSandboxID {
		with = unnamed
	}
	var pods corev1.PodList
	if err := w.r.APIReader.List(ctx, &pods, with); err != nil {
		return nil, nil, fmt.Errorf("listing the pods that name sandbox %s: %w", id, err)
	}
	if id == noSandboxID {
		return nil, pods.Items, nil
	}
	s := &v1alpha1.Sandbox{}
	if err := w.r.APIReader.Get(ctx, client.ObjectKey{Name: id}, s); apierrors.IsNotFound(err) {
		return nil, pods.Items, nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("reading sandbox %s: %w", id, err)
	}
	return s, pods.Items, nil
}

// unnamed selects the pool pods that name no sandbox.
var unnamed = func() client.MatchingLabelsSelector {
	selector, err := labels.Parse(v1alpha1.LabelPool + ",!" + v1alpha1.LabelSandboxID)
	if err != nil {
		panic(err) // the labels are constants
	}
	return client.MatchingLabelsSelector{Selector: selector}
}()

// strays are the claims under the ID that no sandbox owns; s is nil if there is no
// such Sandbox, pods are those that name it.
func (r *Reconciler) strays(id string, s *v1alpha1.Sandbox, pods []corev1.Pod) []stray {
	var owned string
	if s != nil && s.Spec.Binding != nil {
		owned = s.Spec.Binding.ClaimID
		for i := range pods {
			if string(pods[i].UID) == s.Spec.Binding.PodUID && !owns(s, &pods[i]) {
				owned = ""
			}
		}
	}
	var strays []stray
	claims := map[string]bool{owned: true}
	for i := range pods {
		pod := &pods[i]
		claim := pod.Annotations[v1alpha1.AnnotationClaim]
		if claim == "" || claim == owned || stopped(pod) && r.Ledger.SafelyFenced(claim) {
			continue
		}
		claims[claim] = true
		strays = append(strays, stray{claim, pod.Annotations[v1alpha1.AnnotationAddress], pod})
	}
	for _, held := range r.Ledger.HeldBy(strings.TrimPrefix(id, noSandboxID)) {
		if !claims[held.ClaimID] {
			strays = append(strays, stray{claim: held.ClaimID, address: held.Address})
		}
	}
	return strays
}

// suspect notes whether the cache shows a stray under the ID; err is what reading
// its Sandbox came to. It is called at each look at the ID, thus after each change
// of the Sandbox, and of a pod that names it: nothing else makes a stray. A live sandbox
// that is bound to another claim ends its strays itself (letPodsGo).
func (r *Reconciler) suspect(ctx context.Context, id string, s *v1alpha1.Sandbox, err error) error {
	if err != nil {
		s = nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil // the look ends with the error, and there will be another
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.MatchingFields{indexSandboxID: id}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the pods that name the sandbox: %w", err)
	}
	r.suspects.set(id, len(r.strays(id, s, pods.Items)) > 0)
	return nil
}

// suspects are the IDs under which the cache shows a claim that no sandbox owns.
// It is safe for concurrent use.
type suspects struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

func (s *suspects) set(id string, suspect bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if suspect {
		s.ids[id] = struct{}{}
	} else {
		delete(s.ids, id)
	}
}

func (s *suspects) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, is := s.ids[id]
	return is
}

func (s *suspects) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.ids))
}

// owns: the sandbox sees to the pod's end, or has. One that is Ended and does
// not know the pod's address, or whose pod still runs, does not. It is pure.
func owns(s *v1alpha1.Sandbox, pod *corev1.Pod) bool {
	if !v1alpha1.Backs(pod, s) {
		return false
	}
	if s.Status.Phase != v1alpha1.SandboxEnded {
		return true
	}
	phase := v1alpha1.PhaseOf(pod)
	return served(s) && s.Status.Address == pod.Annotations[v1alpha1.AnnotationAddress] &&
		(phase == v1alpha1.PodStopping || phase == v1alpha1.PodFailed || pod.DeletionTimestamp != nil)
}

// release stops the stray's pod and fences its address. The pool reconciler then
// lets the pod go. It is done again by the next sweep if a step fails.
func (w *sweeper) release(ctx context.Context, s stray) error {
	log.FromContext(ctx).Info("ending a claim that no sandbox owns", "claim", s.claim, "address", s.address)
	var rv uint64
	var err error
	if s.pod == nil {
		rv, err = w.r.podListRV(ctx)
	} else {
		rv, err = releasePod(ctx, w.r.Client, s.pod, sandboxpool.ReleaseSandboxPodOptions{
			StopReason: v1alpha1.StopCanceled, FailureReason: "NoSandbox", FailureMessage: "no sandbox owns this claim",
		})
	}
	if err != nil {
		return err
	}
	if s.address == "" {
		return nil // never reachable
	}
	addr, err := netip.ParseAddr(s.address)
	if err != nil {
		return fmt.Errorf("the claim's address: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, w.r.FenceTimeout)
	defer cancel()
	if err := w.r.Fencer.Fence(ctx, addr, rv); err != nil {
		return fmt.Errorf("fencing %s: %w", addr, err)
	}
	w.r.Ledger.Fenced(s.claim, s.address)
	return nil
}
