package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
)

// maxEnvironment bounds the line with the environment before an archive: sandboxd takes
// 4 MiB in one /init.
const maxEnvironment = 8 << 20

// errNoEnvironment: the archive has no line with the environment before it.
var errNoEnvironment = errors.New("the archive does not begin with the sandbox's environment")

// errUnidentified: no other pod's images could be compared with those of this pod.
var errUnidentified = fmt.Errorf("%w: its node does not tell the digests of its images", sandboxdclient.ErrNoArchive)

// HibernatorAgent makes the calls to a pod's sandboxd that a Hibernator needs. *sandboxdclient.Agent
// implements it.
type HibernatorAgent interface {
	// ArchiveAll returns the archive of the files of a frozen sandbox, after a line with its
	// environment; sandboxdclient.ErrBusy if the sandbox runs again.
	ArchiveAll(ctx context.Context, id string, pod *corev1.Pod) (io.ReadCloser, error)
	// Restore sends the parts of an archive that were not sent yet.
	Restore(ctx context.Context, id string, pod *corev1.Pod, r *sandboxdclient.Restoring) error
	// InitRestored initialises the process of sandboxd that has restored the archive with
	// the sandbox's token and environment.
	InitRestored(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod, env map[string]string, r *sandboxdclient.Restoring) error
}

// Hibernator keeps the files of sandboxes that are paused to hibernate, and restores them
// in their next pods. Make it with NewHibernator. Safe for concurrent use.
type Hibernator struct {
	x     *Snapshots
	agent HibernatorAgent
	// applyRules makes the sandbox's rules for outgoing connections hold for its new pod.
	applyRules func(ctx context.Context, s *v1alpha1.Sandbox) error

	restores restores
	refusals refusals
}

// NewHibernator makes a Hibernator that uses the store and API client of x. It calls
// applyRules for a sandbox's new pod before anything runs in that pod.
func NewHibernator(x *Snapshots, a HibernatorAgent, applyRules func(context.Context, *v1alpha1.Sandbox) error) *Hibernator {
	return &Hibernator{x: x, agent: a, applyRules: applyRules, restores: restores{byClaim: map[string]*restoring{}}}
}

// Keepable returns nil if the files of a pod can be kept, as far as its object shows.
func (p *Hibernator) Keepable(pod *corev1.Pod) error {
	if !identified(pod) {
		return errUnidentified
	}
	return nil
}

// Keep keeps the files of a frozen sandbox in its pod as a Checkpoint, reads them back,
// and returns its name. After an error nothing is kept, or the controller deletes it.
//
// It opens the archive before it creates the Checkpoint: sandboxdclient.ErrBusy, which another
// gateway causes for as long as it reads the files, then costs no object. ErrBusy also says
// that there is no place for another archive at this gateway.
func (p *Hibernator) Keep(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) (checkpoint string, err error) {
	if err := p.Keepable(pod); err != nil {
		return "", err
	}
	end, err := p.x.begin(ctx, s.Spec.Namespace, claimOf(s))
	if errors.Is(err, errNoPlace) {
		err = fmt.Errorf("%w: %w", sandboxdclient.ErrBusy, err)
	}
	if err != nil {
		return "", fmt.Errorf("keep the files of sandbox %s: %w", s.Name, publicError(err))
	}
	defer end()
	archive, err := p.x.open(ctx, func(ctx context.Context) (io.ReadCloser, error) { return p.agent.ArchiveAll(ctx, s.Name, pod) })
	if err != nil {
		return "", fmt.Errorf("keep the files of sandbox %s: %w", s.Name, publicError(err))
	}
	defer func() { _ = archive.Close() }() // an error of this counts in save alone
	cp := &v1alpha1.Checkpoint{}
	cp.Namespace, cp.Name = s.Spec.Namespace, newID()
	cp.Finalizers = []string{v1alpha1.FinalizerCheckpoint}
	if owner := s.Annotations[v1alpha1.AnnotationOwner]; owner != "" {
		cp.Annotations = map[string]string{v1alpha1.AnnotationOwner: owner}
	}
	cp.Spec = v1alpha1.CheckpointSpec{
		SandboxID: s.Name, SandboxUID: string(s.UID), ClaimID: s.Spec.Binding.ClaimID,
		Contents: []v1alpha1.CheckpointContent{v1alpha1.CheckpointFilesystem}, Cause: v1alpha1.CheckpointPause,
	}
	err = p.x.o.API.Create(ctx, cp)
	p.x.reserved.giveBack(claimOf(s))
	if err != nil {
		return "", fmt.Errorf("keep the files of sandbox %s: %w", s.Name, p.x.createError(err))
	}
	failpoint.Hit("snapshots/pausing") // the object is there, and nothing is kept
	if err := p.save(ctx, cp, s, pod, archive); err != nil {
		p.x.discard(ctx, cp, err)
		return "", fmt.Errorf("keep the files of sandbox %s: %w", s.Name, publicError(err))
	}
	return cp.Name, nil
}

// save takes a Checkpoint from its creation to Succeeded.
func (p *Hibernator) save(ctx context.Context, cp *v1alpha1.Checkpoint, s *v1alpha1.Sandbox, pod *corev1.Pod, archive *steady) error {
	err := p.x.setStatus(ctx, cp, "", v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointCreating})
	if err != nil {
		return err
	}
	return p.x.put(ctx, cp, archive, func(info checkpoint.Info) error {
		if err := p.verify(ctx, cp, info.Digest); err != nil {
			return err
		}
		return p.x.setStatus(ctx, cp, v1alpha1.CheckpointCreating, v1alpha1.CheckpointStatus{
			Phase: v1alpha1.CheckpointSucceeded, CheckpointID: cp.Name, Bytes: info.Bytes, Digest: info.Digest, CompletedAt: new(metav1.Now()),
			Pool: s.Spec.Pool, Images: v1alpha1.ImageDigests(pod), TemplateHash: pod.Annotations[v1alpha1.AnnotationTemplateHash],
		})
	})
}

// verify reads the archive back from the store to its end, since the pod is given up next
// and has the only other copy of the files.
func (p *Hibernator) verify(ctx context.Context, cp *v1alpha1.Checkpoint, digest string) error {
	archive, info, err := p.x.o.Store.Get(ctx, string(cp.UID))
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }() // it was only read
	if info.Digest != digest {
		return fmt.Errorf("the store returns another archive for checkpoint %s than was put", cp.Name)
	}
	if _, err := readEnvironment(archive); err != nil {
		return fmt.Errorf("%w: %w", sandboxdclient.ErrNoArchive, err)
	}
	_, err = io.Copy(io.Discard, archive)
	return err
}

// readEnvironment reads the line with the environment before an archive, and no byte more.
func readEnvironment(archive io.Reader) (map[string]string, error) {
	line, next := []byte{}, make([]byte, 1) // archive has its bytes in memory
	for len(line) <= maxEnvironment {
		switch _, err := io.ReadFull(archive, next); {
		case errors.Is(err, io.EOF):
			return nil, errNoEnvironment
		case err != nil:
			return nil, err
		}
		if next[0] != '\n' {
			line = append(line, next[0])
			continue
		}
		env := map[string]string{}
		if json.Unmarshal(line, &env) != nil {
			return nil, errNoEnvironment
		}
		return env, nil
	}
	return nil, errNoEnvironment
}

// identified reports whether the digests of all images that the pod runs are known.
// Without them no other pod could be compared with it, and nothing could be restored.
func identified(pod *corev1.Pod) bool {
	digests := v1alpha1.ImageDigests(pod)
	for i := range pod.Spec.Containers {
		if digests[pod.Spec.Containers[i].Name] == "" {
			return false
		}
	}
	return true
}
