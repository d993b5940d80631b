package builds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
)

// maxTags is how many tags a build may have.
const maxTags = 64

// Assign implements restapi.Builds. The controller moves the names of pools.
func (b *Builds) Assign(ctx context.Context, caller routing.KeyOwner, idOrName, from string, tags []string) (string, error) {
	for {
		all, err := b.ofTemplate(ctx, caller, idOrName)
		if err != nil {
			return "", err
		}
		holders := v1alpha1.TagHolders(all)
		build := holders[from]
		if build == nil {
			return "", restapi.ErrNoBuild
		}
		lacking := slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return holders[tag] == build })
		at := v1alpha1.NextTagTime(all, lacking, time.Now())
		err = b.retag(ctx, build, func(had []v1alpha1.BuildTag) []v1alpha1.BuildTag {
			had = without(had, lacking)
			for _, tag := range lacking {
				had = append(had, v1alpha1.BuildTag{Name: tag, At: at})
			}
			return had
		})
		if errors.Is(err, writes.ErrStale) && backoff.Sleep(ctx, settlePause) {
			continue
		}
		if err != nil {
			return "", err
		}
		return build.Name, b.known(ctx, build, tags, true)
	}
}

// Remove implements restapi.Builds. The build that has a tag loses it last: no other has it
// meanwhile.
func (b *Builds) Remove(ctx context.Context, caller routing.KeyOwner, idOrName string, tags []string) error {
	for {
		all, err := b.ofTemplate(ctx, caller, idOrName)
		if err != nil {
			return err
		}
		var held []*v1alpha1.TemplateBuild
		for tag, build := range v1alpha1.TagHolders(all) {
			if slices.Contains(tags, tag) && !slices.Contains(held, build) {
				held = append(held, build)
			}
		}
		var order []*v1alpha1.TemplateBuild
		for i := range all {
			if !slices.Contains(held, &all[i]) {
				order = append(order, &all[i])
			}
		}
		for _, build := range append(order, held...) {
			if err = b.retag(ctx, build, func(had []v1alpha1.BuildTag) []v1alpha1.BuildTag { return without(had, tags) }); err != nil {
				break
			}
		}
		if errors.Is(err, writes.ErrStale) && backoff.Sleep(ctx, settlePause) {
			continue
		}
		for _, build := range held {
			if err == nil {
				err = b.known(ctx, build, tags, false)
			}
		}
		return err
	}
}

func without(had []v1alpha1.BuildTag, tags []string) []v1alpha1.BuildTag {
	return slices.DeleteFunc(slices.Clone(had), func(tag v1alpha1.BuildTag) bool { return slices.Contains(tags, tag.Name) })
}

// retag changes the tags of a build that is Ready; writes.ErrStale: it is not as it was read.
func (b *Builds) retag(ctx context.Context, build *v1alpha1.TemplateBuild, change func([]v1alpha1.BuildTag) []v1alpha1.BuildTag) error {
	want := change(build.Status.Tags)
	if slices.Equal(want, build.Status.Tags) {
		return nil
	}
	if len(want) > maxTags {
		return &restapi.RefusedBuildError{Reason: fmt.Sprintf("tags: a build has at most %d", maxTags)}
	}
	before := build.DeepCopy()
	build.Status.Tags = want
	err := b.o.API.Status().Patch(ctx, build, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch writes.Judge(err) {
	case writes.Applied:
		return nil
	case writes.Conflict, writes.Gone:
		return writes.ErrStale
	}
	return fmt.Errorf("change the tags of a build: %w", err)
}

// known returns when this gateway knows a build by its names with the tags, or by none of them.
func (b *Builds) known(ctx context.Context, build *v1alpha1.TemplateBuild, tags []string, by bool) error {
	pool := v1alpha1.TemplatePool(build.Name)
	for slices.ContainsFunc(tags, func(tag string) bool {
		return by != (b.o.Resolve(build.Namespace, v1alpha1.TemplateAliases(tag, build.Spec.Name)[0]) == pool)
	}) {
		if !backoff.Sleep(ctx, poolPoll) {
			return fmt.Errorf("wait until the names of a template are known: %w", ctx.Err())
		}
	}
	return nil
}
