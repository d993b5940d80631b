package builds

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/builds/store"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
)

const (
	// maxUpload bounds one upload, in bytes.
	maxUpload = 4 << 30
	// uploadFor is how long the URL of an upload is valid.
	uploadFor = time.Hour
	// maxKept bounds the builds of a namespace that are kept, and maxKeptOfKey those that one API key
	// has requested: one key must not keep the others from building. maxRunning and maxRunningOfKey
	// bound those that run at this gateway, and maxAtOnce those of all namespaces together.
	maxKept, maxKeptOfKey                  = 200, 100
	maxRunning, maxRunningOfKey, maxAtOnce = 8, 4, 16
	// maxRecipe bounds the texts of a recipe, in bytes.
	maxRecipe = 256 << 10
)

// Agent makes the calls to a pod's sandboxd that a build needs. *sandboxdclient.Agent
// implements it.
type Agent interface {
	Run(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod, c sandboxdclient.Command, output func([]byte)) (int, error)
	Put(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod, path, user string, content io.Reader) error
	ArchiveSince(ctx context.Context, id string, pod *corev1.Pod, since sandboxdclient.Mark) (io.ReadCloser, sandboxdclient.Mark, error)
}

// Sandboxes makes and ends the builders. restapi.Sandboxes has both calls.
type Sandboxes interface {
	Create(ctx context.Context, n restapi.NewSandbox) (restapi.Sandbox, error)
	End(ctx context.Context, namespace, id string) error
}

// Pods reads a sandbox and its pod, if sandboxd may be called there now. BuilderPods implements it.
type Pods interface {
	Callable(ctx context.Context, namespace, id string) (*v1alpha1.Sandbox, *corev1.Pod, error)
}

// Options of New. All are required.
type Options struct {
	API       client.Client // must not read from a cache
	Store     *store.Store
	Sandboxes Sandboxes
	Pods      Pods
	Agent     Agent
	// HasPool reports whether this gateway knows the pool.
	HasPool func(namespace, name string) bool
	// Resolve returns the pool that a template's name leads to at this gateway; empty: none.
	Resolve func(namespace, name string) string
	// Sign returns a text that only gateways of this cluster can make of a message.
	Sign func(message string) string
	// Gateway is this gateway's name.
	Gateway string
	Log     *slog.Logger
}

// Builds implements restapi.Builds. It is safe for concurrent use.
type Builds struct {
	o       Options
	stopped context.Context // ends when builds are to end
	stop    context.CancelFunc
	running sync.WaitGroup
	// maxBytes is maxBytesOfKey; tests set another.
	maxBytes int64
	atOnce   chan struct{} // has an element for each build whose steps run

	mu sync.Mutex        // guards of
	of map[[2]string]int // how many builds of a namespace, and of a key in it, run or wait for others
}

var _ restapi.Builds = (*Builds)(nil)

// New returns a Builds. Call Stop before the process ends.
func New(o Options) *Builds {
	b := &Builds{o: o, maxBytes: maxBytesOfKey, atOnce: make(chan struct{}, maxAtOnce), of: map[[2]string]int{}}
	b.stopped, b.stop = context.WithCancel(context.Background())
	return b
}

// Stop ends all builds of this gateway, which fail, and returns when that is written or cannot
// be.
func (b *Builds) Stop() {
	b.stop()
	b.running.Wait()
}

// templateID is the ID of a template: 20 of a-z and 2-7.
func templateID(caller routing.KeyOwner, name string) string {
	sum := sha256.Sum256([]byte(string(caller.NamespaceUID) + "/" + name))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:20])
}

// Request implements restapi.Builds.
func (b *Builds) Request(ctx context.Context, caller routing.KeyOwner, r restapi.BuildRequest) (restapi.Build, error) {
	all, err := b.list(ctx, caller.Namespace)
	if err != nil {
		return restapi.Build{}, err
	}
	ofKey := 0
	for i := range all {
		if all[i].Annotations[v1alpha1.AnnotationOwner] == caller.KeyID {
			ofKey++
		}
	}
	if len(all) >= maxKept || ofKey >= maxKeptOfKey {
		return restapi.Build{}, restapi.ErrBuildLimit
	}
	if left, err := b.room(ctx, caller.Namespace, caller.KeyID); err != nil {
		return restapi.Build{}, err
	} else if left <= 0 {
		return restapi.Build{}, restapi.ErrBuildBytes
	}
	id := templateID(caller, r.Name)
	build := &v1alpha1.TemplateBuild{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: caller.Namespace, Name: uuid.NewString(),
			Labels: map[string]string{v1alpha1.LabelTemplate: id}, Annotations: map[string]string{v1alpha1.AnnotationOwner: caller.KeyID},
		},
		Spec: v1alpha1.TemplateBuildSpec{TemplateID: id, Name: r.Name, Tags: r.Tags, CPUCount: r.CPUCount, MemoryMB: r.MemoryMB},
	}
	if err := b.o.API.Create(ctx, build); err != nil {
		return restapi.Build{}, fmt.Errorf("make a build: %w", err)
	}
	return view(build), nil
}

// get reads a build of the caller's.
func (b *Builds) get(ctx context.Context, caller routing.KeyOwner, template, id string) (*v1alpha1.TemplateBuild, error) {
	if uuid.Validate(id) != nil {
		return nil, restapi.ErrNoBuild
	}
	build := &v1alpha1.TemplateBuild{}
	err := b.o.API.Get(ctx, client.ObjectKey{Namespace: caller.Namespace, Name: id}, build)
	if apierrors.IsNotFound(err) {
		return nil, restapi.ErrNoBuild
	}
	if err != nil {
		return nil, fmt.Errorf("read a build: %w", err)
	}
	if build.Spec.TemplateID != template && build.Spec.Name != template {
		return nil, restapi.ErrNoBuild
	}
	return build, nil
}

// Get implements restapi.Builds.
func (b *Builds) Get(ctx context.Context, caller routing.KeyOwner, template, id string) (restapi.Build, error) {
	build, err := b.get(ctx, caller, template, id)
	if err != nil {
		return restapi.Build{}, err
	}
	v := view(build)
	if v.State == "ready" && !b.named(build) {
		v.State = "building"
	}
	return v, nil
}

// namesFor is how long after a build is Ready its names may lead elsewhere at a gateway. After it
// another build may have them.
const namesFor = 30 * time.Second

// named reports whether this gateway knows the names of a Ready build: its client uses them as
// soon as it reads that the build is ready.
func (b *Builds) named(build *v1alpha1.TemplateBuild) bool {
	if at := build.Status.PhaseAt; at == nil || time.Since(at.Time).Abs() > namesFor {
		return true
	}
	return !slices.ContainsFunc(build.Status.Tags, func(tag v1alpha1.BuildTag) bool {
		name := v1alpha1.TemplateAliases(tag.Name, build.Spec.Name)[0]
		return b.o.Resolve(build.Namespace, name) != v1alpha1.TemplatePool(build.Name)
	})
}

// Delete implements restapi.Builds. A gateway that runs one of the builds notices it at its
// next write.
func (b *Builds) Delete(ctx context.Context, caller routing.KeyOwner, idOrName string) (bool, error) {
	all, err := b.list(ctx, caller.Namespace, templateIDs(caller, idOrName)...)
	if err != nil {
		return false, err
	}
	for i := range all {
		build := &v1alpha1.TemplateBuild{ObjectMeta: all[i].ObjectMeta}
		if err := b.o.API.Delete(ctx, build, client.Preconditions{UID: &build.UID}); err != nil && !apierrors.IsNotFound(err) {
			return true, fmt.Errorf("delete a build: %w", err)
		}
	}
	return len(all) > 0, nil
}

// before reports whether an upload is rather the other build's: that one waits, or is newer.
func before(build, other *v1alpha1.TemplateBuild) bool {
	waits, othersWaits := states[build.Status.Phase] == "waiting", states[other.Status.Phase] == "waiting"
	if waits != othersWaits {
		return othersWaits
	}
	return build.CreationTimestamp.Before(&other.CreationTimestamp)
}

// Start implements restapi.Builds.
func (b *Builds) Start(ctx context.Context, caller routing.KeyOwner, template, id string, r restapi.Recipe) error {
	build, err := b.get(ctx, caller, template, id)
	if err != nil {
		return err
	}
	if states[build.Status.Phase] != "waiting" {
		return restapi.ErrBuildStarted
	}
	recipe, err := b.begins(ctx, caller, r)
	if err != nil {
		return err
	}
	size := len(r.Start) + len(r.Ready)
	for i, step := range r.Steps {
		for _, arg := range step.Args {
			size += len(arg)
		}
		if size > maxRecipe {
			return &restapi.RefusedBuildError{Reason: fmt.Sprintf("steps: their texts have more than %d KiB; put what is long into a file that COPY copies", maxRecipe>>10)}
		}
		recipe.Steps = append(recipe.Steps, v1alpha1.TemplateStep{Type: v1alpha1.TemplateStepType(step.Type), Args: step.Args, Files: step.Files})
		if step.Files == "" {
			continue
		}
		present, err := b.o.Store.HasFiles(ctx, string(caller.NamespaceUID), template, step.Files)
		if err != nil {
			return err
		}
		if present == "" {
			return &restapi.RefusedBuildError{Reason: fmt.Sprintf("steps[%d]: %s", i, store.ErrNoFiles)}
		}
	}
	// A start that failed between its two writes leaves its recipe: the same may be started again.
	if build.Spec.Recipe != nil && !equality.Semantic.DeepEqual(build.Spec.Recipe, recipe) {
		return restapi.ErrBuildStarted
	}
	if !b.enter(caller) {
		return restapi.ErrBuildLimit
	}
	started := false
	defer func() {
		if !started {
			b.leave(caller)
		}
	}()
	if build.Spec.Recipe == nil {
		before := build.DeepCopy()
		build.Spec.Recipe = recipe
		if err := b.o.API.Patch(ctx, build, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return startError(err)
		}
	}
	record := newRecord(b.o.API, build)
	if err := record.begin(ctx, b.o.Gateway); err != nil {
		return startError(err)
	}
	started = true
	b.running.Go(func() {
		defer b.leave(caller)
		b.run(record, caller, r)
	})
	return nil
}

// begins returns a recipe without its steps. A build from a template has the template's start and
// ready commands unless it names one, as at E2B.
func (b *Builds) begins(ctx context.Context, caller routing.KeyOwner, r restapi.Recipe) (*v1alpha1.TemplateRecipe, error) {
	recipe := &v1alpha1.TemplateRecipe{From: r.Image, StartCommand: r.Start, ReadyCommand: r.Ready}
	if r.Template == "" {
		if err := b.o.Store.Allowed(r.Image); err != nil {
			return nil, &restapi.RefusedBuildError{Reason: "fromImage: " + err.Error()}
		}
		return recipe, nil
	}
	all, err := b.ofTemplate(ctx, caller, r.Template)
	if err != nil && !errors.Is(err, restapi.ErrNoBuild) {
		return nil, err
	}
	from := v1alpha1.TagHolders(all)[r.Tag]
	if from == nil || from.Spec.Recipe == nil {
		return nil, &restapi.RefusedBuildError{Reason: fmt.Sprintf("fromTemplate: there is no template %s:%s that was built here", r.Template, r.Tag)}
	}
	recipe.From, recipe.FromTemplate = from.Status.Image, r.Template+":"+r.Tag
	if r.Start == "" && r.Ready == "" {
		recipe.StartCommand, recipe.ReadyCommand = from.Spec.Recipe.StartCommand, from.Spec.Recipe.ReadyCommand
	}
	return recipe, nil
}

// enter counts a build of a namespace and of an API key, unless as many of either run as may.
func (b *Builds) enter(caller routing.KeyOwner) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	namespace, key := [2]string{caller.Namespace}, [2]string{caller.Namespace, caller.KeyID}
	if b.of[namespace] >= maxRunning || b.of[key] >= maxRunningOfKey {
		return false
	}
	b.of[namespace]++
	b.of[key]++
	return true
}

func (b *Builds) leave(caller routing.KeyOwner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, counted := range [][2]string{{caller.Namespace}, {caller.Namespace, caller.KeyID}} {
		if b.of[counted]--; b.of[counted] == 0 {
			delete(b.of, counted)
		}
	}
}

func startError(err error) error {
	if errors.Is(err, errGivenUp) { // another gateway began it, or it was deleted
		return restapi.ErrBuildStarted
	}
	switch writes.Judge(err) {
	case writes.Conflict:
		return restapi.ErrBuildStarted
	case writes.Invalid, writes.TestFailed: // the patch has no test: both say that the recipe is not valid
		return &restapi.RefusedBuildError{Reason: "the steps are not valid, or more than a build can have"}
	}
	return fmt.Errorf("start a build: %w", err)
}
