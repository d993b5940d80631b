package builds

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/builds/store"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/restapi/sandboxid"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/routing"
)

const (
	// buildFor bounds a build, builderFor the start of its builder.
	buildFor, builderFor = time.Hour, 10 * time.Minute
	// endFor bounds what follows a build: ending the builder, and writing that it failed.
	endFor = 15 * time.Second
	// poolPoll is the time between two looks for the builder's pool.
	poolPoll = 200 * time.Millisecond
)

// errStopped is why a build fails whose gateway stops.
var errStopped = errors.New("the gateway that ran the build was stopped; build it again")

// run runs a build that was started.
func (b *Builds) run(record *record, caller routing.KeyOwner, recipe restapi.Recipe) {
	ctx, cancel := context.WithTimeout(b.stopped, buildFor)
	defer cancel()
	givenUp, done := make(chan struct{}), make(chan struct{})
	kept, stopKeeping := context.WithCancel(ctx)
	r := &runner{Builds: b, record: record, caller: caller, build: record.build, username: recipe.Username, password: recipe.Password, reusable: reusable(recipe)}
	go func() {
		defer close(done)
		record.keep(kept, func() { close(givenUp); cancel() })
	}()
	err := r.do(ctx)
	stopKeeping()
	<-done
	last, cancelLast := context.WithTimeout(context.Background(), endFor)
	defer cancelLast()
	r.endBuilder(last)
	select {
	case <-givenUp:
		return
	default:
	}
	switch {
	case err == nil:
		return
	case b.stopped.Err() != nil:
		err = errStopped
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("the build took longer than %s", buildFor)
	}
	var failed *store.Failure
	if errors.As(err, &failed) {
		b.o.Log.Error("a build failed for a reason that its user does not read", "build", r.build.Name, "error", failed.Err)
	}
	if err := record.fail(last, err); err != nil && !errors.Is(err, errGivenUp) {
		b.o.Log.Warn("that a build failed could not be written; the controller will", "build", r.build.Name, "error", err)
	}
}

// runner runs one build.
type runner struct {
	*Builds
	record             *record
	caller             routing.KeyOwner
	build              *v1alpha1.TemplateBuild // as it was started; only its names and spec are read
	username, password string

	reusable int                 // how many first steps of the plan may be taken from an earlier build
	builder  string              // the ID of the sandbox; empty before it may exist
	mark     sandboxdclient.Mark // of the last image that was made of the builder's files
}

// do takes a build from its start to its image.
func (r *runner) do(ctx context.Context) error {
	r.record.at(v1alpha1.BuildStepBase)
	select {
	case r.atOnce <- struct{}{}:
		defer func() { <-r.atOnce }()
	case <-ctx.Done():
		return ctx.Err()
	}
	base, err := r.base(ctx)
	if err != nil {
		return err
	}
	steps, state, err := r.plan(ctx, base)
	if err != nil {
		return err
	}
	r.record.at(v1alpha1.BuildStepBase)
	image, done, err := r.reuse(ctx, base, steps)
	if err != nil {
		return err
	}
	for _, s := range steps[:done] {
		r.record.at(s.number)
		if s.text != "" {
			r.record.print("info", "CACHED "+s.text)
		}
	}
	if done < len(steps) {
		if image, err = r.work(ctx, image, steps[done:]); err != nil {
			return err
		}
	}
	r.record.at(v1alpha1.BuildStepFinalize)
	return r.finalize(ctx, image, state)
}

// work does steps in a builder that begins with an image, and returns the image that they leave.
func (r *runner) work(ctx context.Context, image *store.Base, steps []planned) (*store.Base, error) {
	r.record.at(steps[0].number)
	if err := r.record.settle(ctx, func(s *v1alpha1.TemplateBuildStatus) { s.Base = image.Reference }); err != nil {
		return nil, err
	}
	s, pod, err := r.startBuilder(ctx)
	if err != nil {
		return nil, err
	}
	for i, step := range steps {
		r.record.at(step.number)
		if step.text != "" {
			r.record.print("info", step.text)
		}
		if err := r.perform(ctx, s, pod, step.action); err != nil {
			return nil, err
		}
		last := !slices.ContainsFunc(steps[i+1:], func(later planned) bool { return later.command != nil })
		if step.kept && (len(image.Layers) < maxLayers || last) {
			if image, err = r.keep(ctx, image, step.key); err != nil {
				return nil, err
			}
		}
	}
	return image, nil
}

// base copies the base.
func (r *runner) base(ctx context.Context) (*store.Base, error) {
	from, namespace := r.build.Spec.Recipe.From, string(r.caller.NamespaceUID)
	r.record.print("info", "FROM "+cmp.Or(r.build.Spec.Recipe.FromTemplate, from))
	base, err := (*store.Base)(nil), error(nil)
	if r.build.Spec.Recipe.FromTemplate != "" {
		if base, err = r.o.Store.Base(ctx, namespace, from); err == nil {
			err = r.admit(ctx, base.Layers)
		}
	} else {
		base, err = r.o.Store.CopyBase(ctx, namespace, from, r.username, r.password, func(layers []store.Layer) error { return r.admit(ctx, layers) })
	}
	return base, err
}

// startBuilder creates the sandbox in which the steps run.
func (r *runner) startBuilder(ctx context.Context) (*v1alpha1.Sandbox, *corev1.Pod, error) {
	r.record.print("debug", "starting the builder")
	ctx, cancel := context.WithTimeout(ctx, builderFor)
	defer cancel()
	pool := v1alpha1.BuilderPool(r.build.Name)
	for !r.o.HasPool(r.caller.Namespace, pool) {
		if !backoff.Sleep(ctx, poolPoll) {
			return nil, nil, errors.New("the controller has made no pool for the builder; ask its log")
		}
	}
	id := sandboxid.New()
	r.builder = id
	var noStart *routing.NoStartError
	err := error(nil)
	for again := true; again; again = errors.As(err, &noStart) && ctx.Err() == nil { // nothing was made; the controller judges the pool
		_, err = r.o.Sandboxes.Create(ctx, restapi.NewSandbox{
			ID: id, Namespace: r.caller.Namespace, Team: r.caller.Team, KeyID: r.caller.KeyID, Pool: pool,
			EndAt: time.Now().Add(buildFor).Truncate(time.Second), Metadata: map[string]string{"sandlane.dev/build": r.build.Name}, Private: true, Secure: true,
		})
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the builder did not start: %w", err)
	}
	s, pod, err := r.o.Pods.Callable(ctx, r.caller.Namespace, id)
	if err != nil {
		return nil, nil, fmt.Errorf("the builder did not start: %w", err)
	}
	return s, pod, nil
}

// endBuilder ends the sandbox, if it may exist.
func (r *runner) endBuilder(ctx context.Context) {
	if r.builder == "" {
		return
	}
	if err := r.o.Sandboxes.End(ctx, r.caller.Namespace, r.builder); err != nil && !errors.Is(err, restapi.ErrNotFound) {
		r.o.Log.Warn("the builder of a build could not be ended; it ends with its pool", "build", r.build.Name, "sandbox", r.builder, "error", err)
	}
}

// perform does an action in the builder.
func (r *runner) perform(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod, a action) error {
	if a.files != "" {
		if err := r.put(ctx, s, pod, a.files); err != nil {
			return err
		}
	}
	if a.command == nil {
		return nil
	}
	lines := &lineWriter{print: func(line string) { r.record.print("info", line) }}
	code, err := r.o.Agent.Run(ctx, s, pod, *a.command, lines.write)
	lines.end()
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("exit status %d%s", code, lines.tail())
	}
	return nil
}

// put puts an upload into the builder.
func (r *runner) put(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod, files string) error {
	content, err := r.o.Store.Files(ctx, files)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // it was only read
	return r.o.Agent.Put(ctx, s, pod, uploaded, "root", content)
}

// finalize makes the template's image of what the steps have made.
func (r *runner) finalize(ctx context.Context, made *store.Base, state *state) error {
	r.record.print("info", "making the image")
	image, err := r.o.Store.Configure(ctx, string(r.caller.NamespaceUID), made, state.configure)
	if err != nil {
		return err
	}
	r.record.print("info", "starting the first sandbox")
	return r.record.settle(ctx, func(s *v1alpha1.TemplateBuildStatus) {
		s.Phase, s.Image, s.PhaseAt = v1alpha1.BuildStarting, image, new(metav1.Now())
	})
}

// publicError says why the files of a builder cannot be kept.
func publicError(err error) error {
	if errors.Is(err, sandboxdclient.ErrNoArchive) {
		return fmt.Errorf("the builder's files cannot be kept: %w", err)
	}
	return err
}

// lineWriter calls print with each line of what is written to it.
type lineWriter struct {
	print func(line string)
	rest  []byte
	last  []string // the last lines, for tail
}

const tailLines = 5

func (w *lineWriter) write(p []byte) {
	w.rest = append(w.rest, p...)
	left := w.rest
	for {
		at := bytes.IndexByte(left, '\n')
		if at < 0 && len(left) <= maxEntry {
			break
		}
		if at < 0 {
			at = len(left) - 1
		}
		w.line(string(left[:at+1]))
		left = left[at+1:]
	}
	w.rest = append(w.rest[:0], left...) // once: what has thousands of lines is not moved for each
}

func (w *lineWriter) line(text string) {
	text = strings.TrimRight(text, "\r\n")
	w.print(text)
	if w.last = append(w.last, text); len(w.last) > tailLines {
		w.last = w.last[1:]
	}
}

// end writes a last line that has no end.
func (w *lineWriter) end() {
	if len(w.rest) > 0 {
		w.line(string(w.rest))
		w.rest = nil
	}
}

// tail is the end of the output, for the reason of a failure.
func (w *lineWriter) tail() string {
	if len(w.last) == 0 {
		return ""
	}
	return ": " + strings.Join(w.last, "\n")
}
