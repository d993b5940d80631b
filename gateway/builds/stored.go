package builds

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/builds/store"
	"github.com/sandlane/sandlane/gateway/restapi"
)

// maxBytesOfKey bounds what the registry keeps for the builds of one API key, in bytes. Layers that
// several of them have count once. A build notes what is to be kept before it counts: of two that do
// so at once, one counts both, so that together they never pass the bound, though both may fail.
const maxBytesOfKey = 100 << 30

// errBytes is why a build fails that would have the registry keep too much.
var errBytes = fmt.Errorf("the templates of this API key would have more than %d GiB in the registry: delete one", maxBytesOfKey>>30)

// room is how many bytes the registry may keep for a key besides what its builds have noted;
// negative: it may not keep those.
func (b *Builds) room(ctx context.Context, namespace, key string) (int64, error) {
	sizes := map[string]int64{}
	for next := ""; ; {
		var some v1alpha1.TemplateBuildList
		if err := b.o.API.List(ctx, &some, client.InNamespace(namespace), client.Limit(listedAtOnce), client.Continue(next)); err != nil {
			return 0, fmt.Errorf("list what the builds of a key have stored: %w", err)
		}
		for i := range some.Items {
			if some.Items[i].Annotations[v1alpha1.AnnotationOwner] != key {
				continue
			}
			for _, l := range some.Items[i].Status.Stored {
				sizes[l.Name] = max(sizes[l.Name], l.Size)
			}
		}
		if next = some.Continue; next == "" {
			break
		}
	}
	left := b.maxBytes
	for _, size := range sizes {
		left -= size
	}
	return left, nil
}

// admit notes that the registry keeps layers for the build that runs, before it does. If it may not,
// it takes the note back and returns errBytes.
func (r *runner) admit(ctx context.Context, layers []store.Layer) error {
	var added []string
	if err := r.record.settle(ctx, func(s *v1alpha1.TemplateBuildStatus) { added = noteStored(s, layers) }); err != nil {
		return err
	}
	left, err := r.room(ctx, r.caller.Namespace, r.caller.KeyID)
	if err == nil && left < 0 {
		err = errBytes
	}
	if err != nil { // nothing is kept
		return errors.Join(err, r.record.settle(ctx, func(s *v1alpha1.TemplateBuildStatus) { forgetStored(s, added) }))
	}
	return nil
}

// reserve notes that the registry keeps an upload for a build that waits, before it does. If it may
// not, it takes the note back and returns restapi.ErrBuildBytes.
func (b *Builds) reserve(ctx context.Context, namespace, id string, upload store.Layer) error {
	var added []string
	build, err := b.changeWaiting(ctx, namespace, id, func(s *v1alpha1.TemplateBuildStatus) { added = noteStored(s, []store.Layer{upload}) })
	if err != nil {
		return err
	}
	left, err := b.room(ctx, namespace, build.Annotations[v1alpha1.AnnotationOwner])
	if err == nil && left < 0 {
		err = restapi.ErrBuildBytes
	}
	if err != nil { // nothing is kept
		_, undo := b.changeWaiting(ctx, namespace, id, func(s *v1alpha1.TemplateBuildStatus) { forgetStored(s, added) })
		return errors.Join(err, undo)
	}
	return nil
}

// changeWaiting changes the status of a build that waits, and returns the build;
// restapi.ErrUploadRefused if it does not wait.
func (b *Builds) changeWaiting(ctx context.Context, namespace, id string, change func(*v1alpha1.TemplateBuildStatus)) (*v1alpha1.TemplateBuild, error) {
	for {
		build := &v1alpha1.TemplateBuild{}
		err := b.o.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: id}, build)
		switch {
		case apierrors.IsNotFound(err), err == nil && states[build.Status.Phase] != "waiting":
			return nil, restapi.ErrUploadRefused
		case err != nil:
			return nil, fmt.Errorf("read the build of an upload: %w", err)
		}
		before := build.DeepCopy()
		change(&build.Status)
		err = b.o.API.Status().Patch(ctx, build, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		switch {
		case err == nil:
			return build, nil
		case !apierrors.IsConflict(err):
			return nil, fmt.Errorf("note an upload: %w", err)
		}
	}
}

// noteStored adds layers to those that are stored for a build, and returns the names of those that
// were not there.
func noteStored(s *v1alpha1.TemplateBuildStatus, layers []store.Layer) (added []string) {
	for _, l := range layers {
		at := slices.IndexFunc(s.Stored, func(had v1alpha1.StoredLayer) bool { return had.Name == l.Name })
		if at < 0 {
			s.Stored = append(s.Stored, v1alpha1.StoredLayer{Name: l.Name, Size: l.Size})
			added = append(added, l.Name)
		} else {
			s.Stored[at].Size = max(s.Stored[at].Size, l.Size)
		}
	}
	return added
}

func forgetStored(s *v1alpha1.TemplateBuildStatus, names []string) {
	s.Stored = slices.DeleteFunc(s.Stored, func(l v1alpha1.StoredLayer) bool { return slices.Contains(names, l.Name) })
}
