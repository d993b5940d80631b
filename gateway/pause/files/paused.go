package files

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
)

// giveUpTimeout bounds the write that takes a resume back.
const giveUpTimeout = 5 * time.Second

var (
	// ErrSaveMismatch says that the sandbox's new pod runs other images than the pod whose
	// files were kept. The sandbox hibernates again.
	ErrSaveMismatch = errors.New("SaveMismatch: the pool's images are not those that the sandbox's files were kept with")
	// errLost: the sandbox's Checkpoint does not exist, or belongs to another sandbox.
	errLost = errors.New("the sandbox's kept files are lost")
	// errUnderWay: another request at this gateway is restoring the sandbox.
	errUnderWay = errors.New("the sandbox is being restored")
)

// Ready restores the files of a resumed sandbox into its new pod, initialises sandboxd with
// the environment that was kept, and writes that the sandbox is restored. It is one try of
// an activation.Ready, of at most two seconds, which any gateway may repeat. It returns the
// sandbox; written is true if this call's own write has restored it. A sandbox that another
// gateway has restored may have been paused since.
//
// The steps are: compare the pod's images, apply the rules for outgoing connections, push
// the archive in parts, call /init, remove spec.restore. Each may be repeated. Requests
// reach the pod only after the last one. Where another try cannot help (other images, a
// damaged archive, a pod that refuses the archive) Ready takes the resume back: the sandbox
// hibernates again, and its pod is given up.
func (p *Hibernator) Ready(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) (restored *v1alpha1.Sandbox, written bool, err error) {
	claim := s.Spec.Binding.ClaimID
	t := p.restores.get(claim)
	if t == nil {
		return nil, false, errUnderWay
	}
	defer t.mu.Unlock()
	restored, written, err = p.tryRestore(ctx, t, s, pod)
	hopeless := activation.VerdictOf(err) == activation.EndSandbox
	if err == nil || hopeless {
		t.close()
		p.restores.forget(claim)
	}
	if err == nil {
		p.refusals.forget(s)
		if written {
			p.x.o.Metrics.observe(opResume, t.begun, nil)
		}
	}
	if !hopeless {
		return restored, written, err
	}
	live, again := p.giveUp(ctx, s)
	if live != nil { // another gateway has restored it
		return live, false, nil
	}
	p.x.o.Metrics.observe(opResume, t.begun, err)
	if again != nil {
		return nil, false, activation.TryLater.With(errors.Join(again, err))
	}
	p.refusals.note(s, time.Now())
	p.x.o.Log.Warn("a resume is taken back: the sandbox hibernates again", "sandbox", s.Name, "pod", pod.Name, "reason", message(err))
	return nil, false, activation.FailRequest.With(err)
}

func (p *Hibernator) tryRestore(ctx context.Context, t *restoring, s *v1alpha1.Sandbox, pod *corev1.Pod) (restored *v1alpha1.Sandbox, written bool, err error) {
	if t.parts == nil {
		if err := p.open(ctx, t, s, pod); err != nil {
			return nil, false, err
		}
	}
	if err := p.applyRules(ctx, s); err != nil {
		return nil, false, err
	}
	if !t.done {
		before := t.parts.Sent()
		err := p.agent.Restore(ctx, s.Name, pod, t.parts)
		if activation.VerdictOf(err) == activation.EndSandbox { // another gateway may just have completed the restore, which a second call finds
			err = p.agent.Restore(ctx, s.Name, pod, t.parts)
		}
		switch {
		case err == nil:
			t.done = true
		case activation.VerdictOf(err) != activation.EndSandbox && (errors.Is(err, sandboxdclient.ErrMore) || t.parts.Sent() > before):
			return nil, false, activation.TryNow.With(err)
		default:
			return nil, false, err
		}
		failpoint.Hit("snapshots/restored") // the files are restored, sandboxd is not initialised
	}
	if err := p.agent.InitRestored(ctx, s, pod, t.env, t.parts); err != nil {
		return nil, false, err
	}
	failpoint.Hit("snapshots/initialised") // sandboxd answers, and the Sandbox object still has spec.restore
	return p.writeRestored(ctx, s, newEnd(s, pod, time.Now()))
}

// newEnd returns the end time of a sandbox that runs from now on, nil if it has none. The
// end time was set when the sandbox was bound to the pod; newEnd moves it by the time that
// the restore took. If the time of the binding cannot be read, the sandbox gets the lifetime
// of one that a request resumes.
func newEnd(s *v1alpha1.Sandbox, pod *corev1.Pod, now time.Time) *metav1.Time {
	at := s.Spec.Timeouts.EndAt
	if at == nil {
		return nil
	}
	lifetime := v1alpha1.AutoLifetime(s)
	claimed, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AnnotationClaimedAt])
	if err == nil && at.After(claimed) {
		lifetime = at.Sub(claimed)
	}
	return v1alpha1.EndAfter(now, lifetime)
}

// Restorable returns nil if the sandbox can be restored, as far as that is known before it has a
// pod; routing.ErrNotRestorable if its archive is lost, or its restore has just failed in several
// pods, or, after ten seconds, if the store does not answer. It is an activation.Options.Restorable.
func (p *Hibernator) Restorable(ctx context.Context, s *v1alpha1.Sandbox) error {
	cp, err := p.checkpointOf(ctx, s)
	if err != nil {
		return err
	}
	if delay := p.refusals.delay(s, time.Now()); delay > 0 {
		return fmt.Errorf("%w: its files could not be restored in several pods, and no further pod is tried for %s", routing.ErrNotRestorable, delay.Round(time.Second))
	}
	archive, err := p.openArchive(ctx, cp)
	if err != nil {
		return fmt.Errorf("%w: %w", routing.ErrNotRestorable, err)
	}
	_ = archive.Close() // nothing was read
	return nil
}

// Fits returns nil if a sandbox that is Restorable can be restored in an idle pod, as far as that
// is known before the claim: a pod with other images is refused with routing.ErrNotRestorable. It
// is an activation.Options.Fits.
func (p *Hibernator) Fits(ctx context.Context, s *v1alpha1.Sandbox, name types.NamespacedName) error {
	cp, err := p.checkpointOf(ctx, s) // it may have gone while the sandbox waited for a pod
	if err != nil {
		return err
	}
	if len(s.Spec.Images) > 0 { // the claim changes the pod's images
		return nil
	}
	pod := &corev1.Pod{}
	if err := p.x.o.API.Get(ctx, name, pod); err != nil {
		return client.IgnoreNotFound(err) // if the pod is gone, the claim fails anyway
	}
	// A pod with the annotation gets other images by the claim, too.
	if pod.Annotations[v1alpha1.AnnotationImage] == "" && !runsImagesOf(pod, cp) {
		return fmt.Errorf("%w: %w", routing.ErrNotRestorable, ErrSaveMismatch)
	}
	return nil
}

// runsImagesOf reports whether a pod runs the images that files were kept with.
func runsImagesOf(pod *corev1.Pod, cp *v1alpha1.Checkpoint) bool {
	return identified(pod) && maps.Equal(v1alpha1.ImageDigests(pod), cp.Status.Images)
}

// checkpointOf is readCheckpoint before a claim: errLost is a routing.ErrNotRestorable too.
func (p *Hibernator) checkpointOf(ctx context.Context, s *v1alpha1.Sandbox) (*v1alpha1.Checkpoint, error) {
	cp, err := p.readCheckpoint(ctx, s)
	if errors.Is(err, errLost) {
		return nil, fmt.Errorf("%w: %w", routing.ErrNotRestorable, err)
	}
	return cp, err
}

// readCheckpoint reads the Checkpoint with the sandbox's files; errLost if there is none
// that can be restored.
func (p *Hibernator) readCheckpoint(ctx context.Context, s *v1alpha1.Sandbox) (*v1alpha1.Checkpoint, error) {
	cp := &v1alpha1.Checkpoint{}
	err := p.x.o.API.Get(ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: s.Spec.Restore.Checkpoint}, cp)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: there is no checkpoint %s", errLost, s.Spec.Restore.Checkpoint)
	case err != nil:
		return nil, fmt.Errorf("read checkpoint %s: %w", s.Spec.Restore.Checkpoint, err)
	case !keptOf(cp, s):
		return nil, fmt.Errorf("%w: checkpoint %s is of another sandbox, or did not succeed", errLost, cp.Name)
	}
	return cp, nil
}

// open opens the archive of the sandbox, if the pod runs the images with which the archive
// was kept.
func (p *Hibernator) open(ctx context.Context, t *restoring, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	cp, err := p.readCheckpoint(ctx, s)
	switch {
	case errors.Is(err, errLost):
		return activation.EndSandbox.With(err)
	case err != nil:
		return err
	case !runsImagesOf(pod, cp):
		return activation.EndSandbox.With(ErrSaveMismatch)
	}
	archive, err := p.openArchive(ctx, cp)
	if errors.Is(err, checkpoint.ErrStuck) { // no other pod would do better
		return err
	}
	if err != nil {
		return activation.EndSandbox.With(err)
	}
	env, err := readEnvironment(archive)
	if err != nil {
		_ = archive.Close()
		return activation.EndSandbox.With(err)
	}
	t.archive, t.env = archive, env
	// The restore's ID is the same at every gateway, so that a gateway can continue after
	// the parts that another gateway has sent.
	t.parts = &sandboxdclient.Restoring{ID: string(cp.UID), Archive: archive}
	return nil
}

// openArchive opens the archive of a Checkpoint. It returns an error if the archive's digest
// is not the one in the Checkpoint's status.
func (p *Hibernator) openArchive(ctx context.Context, cp *v1alpha1.Checkpoint) (checkpoint.Archive, error) {
	archive, info, err := p.x.o.Store.Get(ctx, string(cp.UID))
	if err != nil {
		return nil, err
	}
	if info.Digest != cp.Status.Digest {
		_ = archive.Close() // nothing was read
		return nil, fmt.Errorf("the store returns another archive for checkpoint %s than was put", cp.Name)
	}
	return archive, nil
}

// keptOf reports whether a Checkpoint has the files of this sandbox, kept by a pause.
func keptOf(cp *v1alpha1.Checkpoint, s *v1alpha1.Sandbox) bool {
	return cp.Spec.Cause == v1alpha1.CheckpointPause && cp.Spec.SandboxID == s.Name && cp.Spec.SandboxUID == string(s.UID) &&
		cp.Status.Phase == v1alpha1.CheckpointSucceeded
}

// writeRestored writes that the sandbox is restored, and its end time. written is false if
// another gateway has written that.
func (p *Hibernator) writeRestored(ctx context.Context, s *v1alpha1.Sandbox, end *metav1.Time) (restored *v1alpha1.Sandbox, written bool, err error) {
	out := &v1alpha1.Sandbox{}
	out.Name = s.Name
	err = p.x.o.API.Patch(ctx, out, writes.Restored(s, end).Build())
	switch writes.Judge(err) {
	case writes.Applied:
		return out, true, nil
	case writes.TestFailed, writes.Conflict:
		live, err := p.readRestored(ctx, s)
		if live == nil && err == nil {
			err = writes.ErrStale
		}
		return live, false, err
	}
	return nil, false, fmt.Errorf("writing that sandbox %s is restored: %w", s.Name, err)
}

// readRestored reads the sandbox and returns it if it is restored for the claim of s; nil
// if it is not.
func (p *Hibernator) readRestored(ctx context.Context, s *v1alpha1.Sandbox) (*v1alpha1.Sandbox, error) {
	live, err := p.read(ctx, s.Name, s.UID)
	if live == nil || live.Spec.Paused || live.Spec.Restore != nil || live.Spec.Binding == nil || live.Spec.Binding.ClaimID != s.Spec.Binding.ClaimID {
		return nil, err
	}
	return live, nil
}

// read reads a sandbox that has not ended; nil if there is none of this UID.
func (p *Hibernator) read(ctx context.Context, id string, uid types.UID) (*v1alpha1.Sandbox, error) {
	s := &v1alpha1.Sandbox{}
	err := p.x.o.API.Get(ctx, client.ObjectKey{Name: id}, s)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading sandbox %s: %w", id, err)
	case s.UID != uid, s.Spec.End != nil, s.DeletionTimestamp != nil:
		return nil, nil
	}
	return s, nil
}

// claimOf returns the ID of the claim of the sandbox's binding; empty without a binding.
func claimOf(s *v1alpha1.Sandbox) string {
	if s.Spec.Binding == nil {
		return ""
	}
	return s.Spec.Binding.ClaimID
}

// giveUp takes back the resume that bound s to its pod. It returns the sandbox if another
// gateway has restored it meanwhile, and an error if the sandbox cannot be read or written.
func (p *Hibernator) giveUp(ctx context.Context, s *v1alpha1.Sandbox) (*v1alpha1.Sandbox, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	if live, err := p.readRestored(ctx, s); live != nil || err != nil {
		return live, err
	}
	return nil, p.rehibernate(ctx, s.Name, s.UID, s.Spec.Binding.ClaimID)
}

// Rehibernate takes back a resume that has no pod yet: the sandbox hibernates again. A
// resume that is bound to a pod goes on, since another request may be waiting for it; if it
// fails, the Ready that completes it takes it back.
func (p *Hibernator) Rehibernate(ctx context.Context, id string, uid types.UID) error {
	return p.rehibernate(ctx, id, uid, "")
}

// rehibernate takes back the resume of one claim, whose pod is given up; an empty claim
// means a resume without a binding.
func (p *Hibernator) rehibernate(ctx context.Context, id string, uid types.UID, claim string) error {
	for range writeTries {
		s, err := p.read(ctx, id, uid)
		if err != nil {
			return err
		}
		if s == nil || !v1alpha1.Restoring(s) || claimOf(s) != claim {
			return nil
		}
		err = p.x.o.API.Patch(ctx, s, writes.Rehibernate(s).Build())
		switch writes.Judge(err) {
		case writes.Applied, writes.Gone:
			return nil
		case writes.TestFailed, writes.Conflict:
			continue
		}
		return fmt.Errorf("writing that sandbox %s hibernates again: %w", id, err)
	}
	return fmt.Errorf("writing that sandbox %s hibernates again: it keeps changing", id)
}
