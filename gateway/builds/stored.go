package builds

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/builds/store"
	"github.com/sandlane/sandlane/gateway/restapi"
)

// maxBytesOfKey bounds what the registry keeps for the builds of one API key, in bytes. Layers that
// several of them have count once. Builds that run at once may each find the same room.
const maxBytesOfKey = 100 << 30

// errBytes is why a build fails that would have the registry keep too much.
var errBytes = fmt.Errorf("the templates of this API key would have more than %d GiB in the registry: delete one", maxBytesOfKey>>30)

// room is how many bytes the registry may keep for a key besides what it keeps now and the layers
// given; negative: it may not keep those.
func (b *Builds) room(ctx context.Context, namespace, key string, more []store.Layer) (int64, error) {
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
	for _, l := range more {
		sizes[l.Name] = max(sizes[l.Name], l.Size)
	}
	left := b.maxBytes
	for _, size := range sizes {
		left -= size
	}
	return left, nil
}

// admit notes that the registry keeps layers for the build that runs, before it does; errBytes if it
// may not.
func (r *runner) admit(ctx context.Context, layers []store.Layer) error {
	left, err := r.room(ctx, r.caller.Namespace, r.caller.KeyID, layers)
	if err != nil {
		return err
	}
	if left < 0 {
		return errBytes
	}
	return r.record.settle(ctx, func(s *v1alpha1.TemplateBuildStatus) { noteStored(s, layers) })
}

// reserve notes that the registry keeps an upload for a build that waits, before it does.
func (b *Builds) reserve(ctx context.Context, namespace, id string, upload store.Layer) error {
	for {
		build := &v1alpha1.TemplateBuild{}
		err := b.o.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: id}, build)
		switch {
		case apierrors.IsNotFound(err), err == nil && states[build.Status.Phase] != "waiting":
			return restapi.ErrUploadRefused
		case err != nil:
			return fmt.Errorf("read the build of an upload: %w", err)
		}
		left, err := b.room(ctx, namespace, build.Annotations[v1alpha1.AnnotationOwner], []store.Layer{upload})
		if err != nil {
			return err
		}
		if left < 0 {
			return restapi.ErrBuildBytes
		}
		before := build.DeepCopy()
		noteStored(&build.Status, []store.Layer{upload})
		err = b.o.API.Status().Patch(ctx, build, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		switch {
		case err == nil:
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("note an upload: %w", err)
		}
	}
}

// noteStored adds layers to those that are stored for a build.
func noteStored(s *v1alpha1.TemplateBuildStatus, layers []store.Layer) {
	for _, l := range layers {
		at := slices.IndexFunc(s.Stored, func(had v1alpha1.StoredLayer) bool { return had.Name == l.Name })
		if at < 0 {
			s.Stored = append(s.Stored, v1alpha1.StoredLayer{Name: l.Name, Size: l.Size})
		} else {
			s.Stored[at].Size = max(s.Stored[at].Size, l.Size)
		}
	}
}
