package builds

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/builds/store"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
)

// maxLayers bounds the layers of an image to which steps add more: nodes mount no more than 127.
const maxLayers = 100

// planned is what a step does, with the key of the image that it leaves.
type planned struct {
	number string // of the step, or what the build calls it
	action
	// key says all that the files depend on after the step. A step that changes none has the key of
	// the step before it.
	key string
	// kept: an image is made after it.
	kept bool
}

// plan returns what a build does on a base, and the state after its last step.
func (r *runner) plan(ctx context.Context, base *store.Base) ([]planned, *state, error) {
	recipe := r.build.Spec.Recipe
	state := initial(base.Config, recipe.FromTemplate != "")
	// Without a name: where there is no such user yet, an image may have none at all.
	add := state.help("--add-user", buildUser)
	add.User = ""
	steps := []planned{{number: v1alpha1.BuildStepBase, action: action{command: add}}}
	for i, step := range recipe.Steps {
		number := strconv.Itoa(i + 1)
		r.record.at(number)
		a, err := state.take(step)
		if err != nil {
			return nil, nil, err
		}
		if step.Files != "" {
			if a.files, err = r.o.Store.HasFiles(ctx, string(r.caller.NamespaceUID), r.build.Spec.TemplateID, step.Files); err != nil {
				return nil, nil, err
			}
			if a.files == "" {
				return nil, nil, store.ErrNoFiles
			}
		}
		steps = append(steps, planned{number: number, action: a, kept: step.Type == v1alpha1.StepRun})
	}
	key, last := base.Reference, 0
	for i := range steps {
		if s := &steps[i]; s.command != nil {
			last = i
			var err error
			if key, err = after(key, s.action); err != nil {
				return nil, nil, err
			}
		}
		steps[i].key = key
	}
	steps[last].kept = true
	return steps, state, nil
}

// after is the key of what an action leaves of what has a key.
func after(key string, a action) (string, error) {
	text, err := json.Marshal(struct {
		After, Files string
		Command      *sandboxdclient.Command
	}{key, a.files, a.command})
	if err != nil {
		return "", fmt.Errorf("name what a step makes: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// reusable is how many first steps of the plan of a recipe may be taken from an earlier build.
func reusable(recipe restapi.Recipe) int {
	if recipe.Force {
		return 0
	}
	if i := slices.IndexFunc(recipe.Steps, func(s restapi.BuildStep) bool { return s.Force }); i >= 0 {
		return i + 1 // the plan's first adds the user
	}
	return len(recipe.Steps) + 1
}

// reuse returns the image of as many first steps as an earlier build of the namespace has made, and
// how many they are, at most r.reusable.
func (r *runner) reuse(ctx context.Context, base *store.Base, steps []planned) (*store.Base, int, error) {
	for n := min(len(steps), r.reusable); n > 0; n-- {
		if !steps[n-1].kept {
			continue
		}
		reference, err := r.o.Store.Step(ctx, string(r.caller.NamespaceUID), steps[n-1].key)
		if err != nil {
			return nil, 0, err
		}
		if reference == "" {
			continue
		}
		// What follows without changing a file is done too.
		for n < min(len(steps), r.reusable) && steps[n].command == nil {
			n++
		}
		image, err := r.o.Store.Base(ctx, string(r.caller.NamespaceUID), reference)
		if err != nil {
			return nil, 0, err
		}
		return image, n, r.admit(ctx, image.Layers)
	}
	return base, 0, nil
}

// keep makes an image of what was changed since the last one, for later builds.
func (r *runner) keep(ctx context.Context, image *store.Base, key string) (*store.Base, error) {
	s, pod, err := r.o.Pods.Callable(ctx, r.caller.Namespace, r.builder)
	if err != nil {
		return nil, fmt.Errorf("the builder is gone: %w", err)
	}
	most, err := r.room(ctx, r.caller.Namespace, r.caller.KeyID)
	if err != nil {
		return nil, err
	}
	archive, mark, err := r.o.Agent.ArchiveSince(ctx, s.Name, pod, r.mark)
	if err != nil {
		return nil, publicError(err)
	}
	made, err := r.o.Store.Append(ctx, string(r.caller.NamespaceUID), image, archive, most, func(layers []store.Layer) error { return r.admit(ctx, layers) })
	if closing := archive.Close(); err == nil {
		err = closing
	}
	if errors.Is(err, store.ErrTooLarge) {
		err = errBytes
	}
	if err != nil {
		return nil, err
	}
	r.mark = mark
	return made, r.o.Store.KeepStep(ctx, string(r.caller.NamespaceUID), key, made)
}
