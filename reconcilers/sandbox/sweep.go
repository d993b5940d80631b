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

// sweeper ends claims that no sandbox owns. It runs on the leader, in one goroutine.
//
// A claimed pod that no Sandbox names, or only a Sandbox that is Ended, in two reads from
// the API server a minute apart, is stopped and its address fenced; so is a claim whose pod
// and Sandbox were both removed by force. Only then is the finalizer of such a pod removed.
//
// The sweeper reads from the API server only the IDs under which the cache shows such a
// claim (orphanCandidates). Whether a claim has an owner depends on the pods that name an ID and on
// the Sandbox of that ID; each change of those makes the Reconciler check the ID in the
// cache (noteCandidate), and a new leader reconciles all IDs once.
type sweeper struct {
	r *Reconciler
	// begun: the claims with which the ledger was loaded were compared with the cache.
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

// NeedLeaderElection returns true: only the leader ends claims.
func (w *sweeper) NeedLeaderElection() bool { return true }

// stray is a claim that no sandbox owns. pod is nil if its pod is gone.
type stray struct {
	claim, address string
	pod            *corev1.Pod
}

// sweep finds strays, and ends those that the sweep before found too.
func (w *sweeper) sweep(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	strays, err := w.find(ctx)
	if err != nil {
		return err // w.seen stays as it was
	}
	before := w.seen
	w.seen = make(map[string]struct{}, len(strays))
	for _, s := range strays {
		w.seen[s.claim] = struct{}{}
		if _, twice := before[s.claim]; !twice {
			continue
		}
		if err := w.end(ctx, s); err != nil {
			log.FromContext(ctx).Error(err, "ending a claim that no sandbox owns", "claim", s.claim)
			continue
		}
		w.r.Metrics.swept()
	}
	return nil
}

// begin adds to the candidates the claims with which the ledger was loaded and whose Sandbox
// does not exist: their Sandbox may have gone before the watches began, so that no event
// queues it.
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
			w.r.orphanCandidates.set(held.SandboxID, true)
		}
	}
	w.begun = true
	return nil
}

// find reads the candidates from the API server and returns their strays. IDs without a stray
// are no candidates any more.
func (w *sweeper) find(ctx context.Context) ([]stray, error) {
	var all []stray
	for _, id := range w.r.orphanCandidates.list() {
		w.r.orphanCandidates.set(id, false) // before the read: an event from now on counts
		s, pods, err := w.readClaim(ctx, id)
		if err != nil {
			w.r.orphanCandidates.set(id, true)
			return nil, err
		}
		strays := w.r.strays(id, s, pods)
		if len(strays) > 0 {
			w.r.orphanCandidates.set(id, true)
		}
		all = append(all, strays...)
	}
	return all, nil
}

// readClaim reads the pods that name the ID, and then its Sandbox, nil if there is none. In
// this order a claim's binding is found, since a claim is written after its binding. Only for
// a new ID are both written at the same time, which is why a stray must be found twice.
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

// unnamed selects the pods of pools that name no sandbox.
var unnamed = func() client.MatchingLabelsSelector {
	selector, err := labels.Parse(v1alpha1.LabelPool + ",!" + v1alpha1.LabelSandboxID)
	if err != nil {
		panic(err) // the labels are constants
	}
	return client.MatchingLabelsSelector{Selector: selector}
}()

// strays returns the claims under the ID that no sandbox owns. s is its Sandbox, nil if there
// is none, and pods are the pods that name the ID.
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
	for _, held := range r.Ledger.UnfencedOf(strings.TrimPrefix(id, noSandboxID)) {
		if !claims[held.ClaimID] {
			strays = append(strays, stray{claim: held.ClaimID, address: held.Address})
		}
	}
	return strays
}

// noteCandidate notes whether the cache shows a stray under the ID; s and err are the result of
// reading its Sandbox. Reconcile calls it first, thus after each change of the Sandbox and of
// a pod that names it: nothing else makes a stray. For a sandbox that is bound to
// another claim endFormerClaims ends the strays too, until the status says Ended.
func (r *Reconciler) noteCandidate(ctx context.Context, id string, s *v1alpha1.Sandbox, err error) error {
	if err != nil {
		s = nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil // Reconcile returns this error, and is called again
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.MatchingFields{indexSandboxID: id}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the pods that name the sandbox: %w", err)
	}
	r.orphanCandidates.set(id, len(r.strays(id, s, pods.Items)) > 0)
	return nil
}

// orphanCandidates are the IDs under which the cache shows a claim that no sandbox owns.
// It is safe for concurrent use.
type orphanCandidates struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

func (s *orphanCandidates) set(id string, candidate bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if candidate {
		s.ids[id] = struct{}{}
	} else {
		delete(s.ids, id)
	}
}

func (s *orphanCandidates) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, is := s.ids[id]
	return is
}

func (s *orphanCandidates) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.ids))
}

// owns reports whether the sandbox's own end stops the pod and fences its address, or has
// done so. A sandbox that is Ended without the pod's address in its status, or whose pod
// still runs, does not own the pod. It is pure.
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

// end stops the stray's pod and fences its address. The pool reconciler then removes the
// pod's finalizer. If a step fails, the next sweep does it again.
func (w *sweeper) end(ctx context.Context, s stray) error {
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
		return nil // no gateway ever routed to the pod
	}
	addr, err := netip.ParseAddr(s.address)
	if err != nil {
		return fmt.Errorf("the claim's address: %w", err)
	}
	if err := w.r.attempt(ctx, addr, rv, isByName(s.pod)); err != nil {
		return fmt.Errorf("fencing %s: %w", addr, err)
	}
	w.r.Ledger.NoteFenced(s.claim, s.address)
	return nil
}
