package builds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

const (
	// unstartedFor is how long a build may wait to be started, failedFor how long a failed one
	// is kept for people to read.
	unstartedFor, failedFor = 24 * time.Hour, 24 * time.Hour
	// silentFor is how long the gateway of a build may be silent; it writes every 20 s.
	silentFor = 2 * time.Minute
	// refusedFor is how long a pool may be degraded before its build fails: some causes pass.
	refusedFor = 30 * time.Second
	// poll is how often a build that is not over is looked at without a change.
	poll = 10 * time.Second
	// cacheFor bounds how long a cache may be behind a write, cachePoll is between two looks.
	cacheFor, cachePoll = 10 * time.Second, 10 * time.Millisecond
)

// Reconciler makes the pools of TemplateBuilds.
type Reconciler struct {
	client.Client
	// Registry is the template registry, with its path. Images of other ones are refused.
	Registry string
	// PullSecret is the Secret of each namespace with which kubelets pull; empty: none.
	PullSecret string
	// Checkpoints: this controller may read Checkpoints, and there may be some.
	Checkpoints bool
	// Clock is the real one if nil.
	Clock clock.Clock

	// beats says when this process first saw the present heartbeat of each build that runs: the
	// clock of the gateway may be another. Only the one worker uses it.
	beats map[types.NamespacedName]beat
}

type beat struct {
	of   time.Time
	seen time.Time
}

// Compact drops from a build what a Reconciler does not read: a namespace may have many, and
// their logs and steps are long. It is a cache's TransformFunc.
func Compact(o any) (any, error) {
	if b, ok := o.(*v1alpha1.TemplateBuild); ok {
		b.ManagedFields, b.Status.Log = nil, nil
		if b.Spec.Recipe != nil {
			b.Spec.Recipe.Steps = nil
		}
	}
	return o, nil
}

// SetupWithManager registers the reconciler. Call it once, before the manager starts.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, o controller.Options) error {
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	o.MaxConcurrentReconciles = 1
	err := ctrl.NewControllerManagedBy(mgr).Named("templatebuild").For(&v1alpha1.TemplateBuild{}).Owns(&v1alpha1.SandboxPool{}).
		WithOptions(o).Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of template builds: %w", err)
	}
	return nil
}

// Reconcile does what is due for one build.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	b := &v1alpha1.TemplateBuild{}
	err := r.Get(ctx, req.NamespacedName, b)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if b.Status.Phase != v1alpha1.BuildBuilding {
		delete(r.beats, req.NamespacedName)
	}
	if err != nil || b.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // its pools go by their owner references
	}
	switch b.Status.Phase {
	case v1alpha1.BuildBuilding:
		return r.building(ctx, b)
	case v1alpha1.BuildStarting:
		return r.starting(ctx, b)
	case v1alpha1.BuildReady:
		if err := errors.Join(r.remove(ctx, b, v1alpha1.BuilderPool(b.Name)), r.name(ctx, b)); err != nil {
			return ctrl.Result{}, err
		}
		return r.ready(ctx, b)
	case v1alpha1.BuildFailed: // names that it had already go back
		err := errors.Join(r.remove(ctx, b, v1alpha1.BuilderPool(b.Name), v1alpha1.TemplatePool(b.Name)), r.name(ctx, b))
		if err != nil {
			return ctrl.Result{}, err
		}
		return r.deleteAfter(ctx, b, failedFor)
	}
	return r.deleteAfter(ctx, b, unstartedFor)
}

// deleteAfter deletes a build some time after its phase was written.
func (r *Reconciler) deleteAfter(ctx context.Context, b *v1alpha1.TemplateBuild, after time.Duration) (ctrl.Result, error) {
	since := b.CreationTimestamp.Time
	if b.Status.PhaseAt != nil {
		since = b.Status.PhaseAt.Time
	}
	if in := since.Add(after).Sub(r.Clock.Now()); in > 0 {
		return ctrl.Result{RequeueAfter: in}, nil
	}
	err := r.Delete(ctx, b, client.Preconditions{UID: &b.UID, ResourceVersion: &b.ResourceVersion})
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// building makes the builder's pool once the base is there.
func (r *Reconciler) building(ctx context.Context, b *v1alpha1.TemplateBuild) (ctrl.Result, error) {
	if r.silent(b) {
		return ctrl.Result{}, r.fail(ctx, b, "the gateway that ran the build has stopped; build it again")
	}
	if b.Status.Base != "" {
		pool, why, err := r.make(ctx, b, r.builderPool(b), b.Status.Base)
		if err != nil {
			return ctrl.Result{}, err
		}
		if why == "" && pool.Status.Running == 0 {
			why = r.degraded(pool)
		}
		if why != "" {
			return ctrl.Result{}, r.fail(ctx, b, why)
		}
	}
	return ctrl.Result{RequeueAfter: poll}, nil
}

// silent reports whether the build's gateway has written nothing for too long.
func (r *Reconciler) silent(b *v1alpha1.TemplateBuild) bool {
	now, at := r.Clock.Now(), time.Time{}
	if b.Status.Heartbeat != nil {
		at = b.Status.Heartbeat.Time
	}
	if r.beats == nil {
		r.beats = map[types.NamespacedName]beat{}
	}
	key := client.ObjectKeyFromObject(b)
	last, known := r.beats[key]
	if !known || !last.of.Equal(at) {
		r.beats[key] = beat{at, now}
		return false
	}
	return now.Sub(last.seen) > silentFor
}

// starting makes the template's pool, and writes Ready when a pod is.
func (r *Reconciler) starting(ctx context.Context, b *v1alpha1.TemplateBuild) (ctrl.Result, error) {
	if err := r.remove(ctx, b, v1alpha1.BuilderPool(b.Name)); err != nil {
		return ctrl.Result{}, err
	}
	pool, why, err := r.make(ctx, b, r.templatePool(b), b.Status.Image)
	if err != nil {
		return ctrl.Result{}, err
	}
	if why == "" && pool.Status.Idle-pool.Status.UnavailableIdle > 0 {
		others, err := r.others(ctx, b)
		if err != nil {
			return ctrl.Result{}, err
		}
		now := v1alpha1.NextTagTime(others, b.Spec.Tags, r.Clock.Now())
		ready := func(s *v1alpha1.TemplateBuildStatus) {
			s.Phase, s.PhaseAt = v1alpha1.BuildReady, &metav1.Time{Time: r.Clock.Now()}
			for _, tag := range b.Spec.Tags {
				s.Tags = append(s.Tags, v1alpha1.BuildTag{Name: tag, At: now})
			}
		}
		// The names come first: a client that reads Ready uses them at once.
		named := b.DeepCopy()
		ready(&named.Status)
		if err := r.name(ctx, named); err != nil {
			return ctrl.Result{}, err
		}
		if err := r.write(ctx, b, ready); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, r.awaitReady(ctx, b)
	}
	if why == "" {
		why = r.degraded(pool)
	}
	if why == "" && b.Status.PhaseAt != nil && r.Clock.Since(b.Status.PhaseAt.Time) > startFor {
		why = fmt.Sprintf("no sandbox of the image was ready within %s; see its start command and its ready command", startFor)
	}
	if why != "" {
		return ctrl.Result{}, r.fail(ctx, b, why)
	}
	return ctrl.Result{RequeueAfter: poll}, nil
}

// awaitReady returns when this client's cache has a build as Ready. There is one worker: before
// that a pass for an older build would take the names back.
func (r *Reconciler) awaitReady(ctx context.Context, b *v1alpha1.TemplateBuild) error {
	ctx, cancel := context.WithTimeout(ctx, cacheFor)
	defer cancel()
	for {
		is := &v1alpha1.TemplateBuild{}
		err := r.Get(ctx, client.ObjectKeyFromObject(b), is)
		if apierrors.IsNotFound(err) || err == nil && is.Status.Phase == v1alpha1.BuildReady {
			return nil
		}
		if !backoff.Sleep(ctx, cachePoll) {
			return fmt.Errorf("waiting until the cache has the build %s as Ready: %w", b.Name, ctx.Err())
		}
	}
}

// degraded says why a pool gets no pods; empty: it is not known that it gets none.
func (r *Reconciler) degraded(pool *v1alpha1.SandboxPool) string {
	c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.PoolConditionDegraded)
	if c == nil || c.Status != metav1.ConditionTrue || r.Clock.Since(c.LastTransitionTime.Time) < refusedFor {
		return ""
	}
	return fmt.Sprintf("its pod does not start: %s: %s", c.Reason, c.Message)
}

// name gives the pools of a template's builds their names, of which b is one as it is now: first
// those that get some, then those that lose some. Between the two the older pool has a name
// that both have, so a name leads nowhere at no time.
func (r *Reconciler) name(ctx context.Context, b *v1alpha1.TemplateBuild) error {
	others, err := r.others(ctx, b)
	if err != nil {
		return err
	}
	aliases := aliasesOf(append(others, *b))
	for _, losing := range []bool{false, true} {
		for name, want := range aliases {
			if err := r.alias(ctx, b.Namespace, v1alpha1.TemplatePool(name), want, losing); err != nil {
				return err
			}
		}
	}
	return nil
}

// others are the other builds of a build's template.
func (r *Reconciler) others(ctx context.Context, b *v1alpha1.TemplateBuild) ([]v1alpha1.TemplateBuild, error) {
	var all v1alpha1.TemplateBuildList
	if err := r.List(ctx, &all, client.InNamespace(b.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the builds of a template: %w", err)
	}
	return slices.DeleteFunc(all.Items, func(other v1alpha1.TemplateBuild) bool {
		return other.Spec.TemplateID != b.Spec.TemplateID || other.Name == b.Name
	}), nil
}

// alias writes the names of a pool. Unless losing, it only adds.
func (r *Reconciler) alias(ctx context.Context, namespace, name string, want []string, losing bool) error {
	pool := &v1alpha1.SandboxPool{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pool); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !losing {
		if had := pool.Annotations[v1alpha1.AnnotationAliases]; had != "" {
			want = slices.Concat(want, strings.Split(had, ","))
		}
		want = slices.Compact(slices.Sorted(slices.Values(want)))
	}
	text := strings.Join(want, ",")
	if pool.Annotations[v1alpha1.AnnotationAliases] == text {
		return nil
	}
	before := pool.DeepCopy()
	metav1.SetMetaDataAnnotation(&pool.ObjectMeta, v1alpha1.AnnotationAliases, text)
	if err := r.Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("naming the pool %s: %w", name, err)
	}
	return nil
}

// make makes a pool unless it is there. why says why it may not be.
func (r *Reconciler) make(ctx context.Context, b *v1alpha1.TemplateBuild, pool *v1alpha1.SandboxPool, image string) (made *v1alpha1.SandboxPool, why string, err error) {
	if why, err := r.refusedImage(ctx, b.Namespace, image); why != "" || err != nil {
		return nil, why, err
	}
	is := &v1alpha1.SandboxPool{}
	err = r.Get(ctx, client.ObjectKeyFromObject(pool), is)
	if err == nil && !metav1.IsControlledBy(is, b) {
		return nil, fmt.Sprintf("there is another pool %s", pool.Name), nil
	}
	if !apierrors.IsNotFound(err) {
		return is, "", err
	}
	// A right to the finalizers of builds would be needed to block their deletion.
	if err := controllerutil.SetControllerReference(b, pool, r.Scheme(), controllerutil.WithBlockOwnerDeletion(false)); err != nil {
		return nil, "", fmt.Errorf("owning the pool %s: %w", pool.Name, err)
	}
	err = r.Create(ctx, pool)
	switch writes.Judge(err) {
	case writes.Applied, writes.Conflict: // Conflict: it was made before this cache knew
		return pool, "", nil
	case writes.Invalid, writes.TestFailed, writes.Forbidden:
		return nil, fmt.Sprintf("its pool is refused: %s", err), nil
	}
	return nil, "", fmt.Errorf("making the pool %s: %w", pool.Name, err)
}

// remove deletes pools of a build.
func (r *Reconciler) remove(ctx context.Context, b *v1alpha1.TemplateBuild, names ...string) error {
	for _, name := range names {
		pool := &v1alpha1.SandboxPool{}
		err := r.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: name}, pool)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err == nil && metav1.IsControlledBy(pool, b) && pool.DeletionTimestamp == nil {
			err = r.Delete(ctx, pool, client.Preconditions{UID: &pool.UID})
		}
		if err := client.IgnoreNotFound(err); err != nil {
			return fmt.Errorf("deleting the pool %s: %w", name, err)
		}
	}
	return nil
}

// fail writes why a build failed, at the step where it is.
func (r *Reconciler) fail(ctx context.Context, b *v1alpha1.TemplateBuild, why string) error {
	return r.write(ctx, b, func(s *v1alpha1.TemplateBuildStatus) {
		s.Phase, s.Message, s.PhaseAt = v1alpha1.BuildFailed, strings.ToValidUTF8(why[:min(len(why), 4000)], ""), &metav1.Time{Time: r.Clock.Now()}
	})
}

func (r *Reconciler) write(ctx context.Context, b *v1alpha1.TemplateBuild, change func(*v1alpha1.TemplateBuildStatus)) error {
	before := b.DeepCopy()
	change(&b.Status)
	if err := r.Status().Patch(ctx, b, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing the status of the build %s: %w", b.Name, err)
	}
	return nil
}
