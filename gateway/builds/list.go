package builds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/routing"
)

// listedAtOnce is how many builds one answer of the API server has: with logs and recipes each may
// have half a megabyte.
const listedAtOnce = 8

// list lists the builds of a namespace, or only those of templates. Of each it reads the
// metadata: the rest of many is more than a gateway should have in memory.
func (b *Builds) list(ctx context.Context, namespace string, templates ...string) ([]metav1.PartialObjectMetadata, error) {
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TemplateBuildList"))
	o := []client.ListOption{client.InNamespace(namespace)}
	if len(templates) > 0 {
		of, err := inTemplates(templates)
		if err != nil {
			return nil, err
		}
		o = append(o, of)
	}
	if err := b.o.API.List(ctx, all, o...); err != nil {
		return nil, fmt.Errorf("list builds: %w", err)
	}
	return all.Items, nil
}

// inTemplates selects the builds of templates.
func inTemplates(ids []string) (client.ListOption, error) {
	of, err := labels.NewRequirement(v1alpha1.LabelTemplate, selection.In, ids)
	if err != nil {
		return nil, fmt.Errorf("list builds: %w", err)
	}
	return client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*of)}, nil
}

// templateIDs are those that a client may mean by an ID or a name of a template.
func templateIDs(caller routing.KeyOwner, idOrName string) []string {
	ids := []string{templateID(caller, idOrName)}
	if len(validation.IsValidLabelValue(idOrName)) == 0 {
		ids = append(ids, idOrName)
	}
	return ids
}

// ofTemplate reads the builds of a template, without logs and steps.
func (b *Builds) ofTemplate(ctx context.Context, caller routing.KeyOwner, idOrName string) ([]v1alpha1.TemplateBuild, error) {
	selector, err := inTemplates(templateIDs(caller, idOrName))
	if err != nil {
		return nil, err
	}
	var all []v1alpha1.TemplateBuild
	for next := ""; ; {
		var some v1alpha1.TemplateBuildList
		if err := b.o.API.List(ctx, &some, client.InNamespace(caller.Namespace), selector, client.Limit(listedAtOnce), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list the builds of a template: %w", err)
		}
		for _, build := range some.Items {
			build.Status.Log = nil
			if build.Spec.Recipe != nil {
				build.Spec.Recipe.Steps = nil
			}
			all = append(all, build)
		}
		if next = some.Continue; next == "" {
			break
		}
	}
	// The label is not the spec: somebody else may write it.
	all = slices.DeleteFunc(all, func(build v1alpha1.TemplateBuild) bool {
		return build.DeletionTimestamp != nil || !slices.Contains(templateIDs(caller, idOrName), build.Spec.TemplateID)
	})
	if len(all) == 0 {
		return nil, restapi.ErrNoBuild
	}
	return all, nil
}

// List implements restapi.Builds.
func (b *Builds) List(ctx context.Context, caller routing.KeyOwner, idOrName string) ([]restapi.Build, error) {
	all, err := b.ofTemplate(ctx, caller, idOrName)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b v1alpha1.TemplateBuild) int {
		if c := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	views := make([]restapi.Build, 0, len(all))
	for i := range all {
		views = append(views, view(&all[i]))
	}
	return views, nil
}

// states are E2B's names of phases.
var states = map[v1alpha1.BuildPhase]string{
	"": "waiting", v1alpha1.BuildWaiting: "waiting", v1alpha1.BuildBuilding: "building", v1alpha1.BuildStarting: "building",
	v1alpha1.BuildReady: "ready", v1alpha1.BuildFailed: "error",
}

func view(build *v1alpha1.TemplateBuild) restapi.Build {
	v := restapi.Build{
		ID: build.Name, TemplateID: build.Spec.TemplateID, Name: build.Spec.Name, Tags: build.Spec.Tags, State: states[build.Status.Phase],
	}
	if build.Status.Phase == v1alpha1.BuildFailed {
		v.Reason, v.Step = build.Status.Message, build.Status.Step
	}
	v.CPUCount, v.MemoryMB = int(build.Spec.CPUCount), int(build.Spec.MemoryMB)
	v.CreatedAt, v.UpdatedAt, v.FinishedAt = build.CreationTimestamp.Time, changed(build), finished(build)
	for _, tag := range build.Status.Tags {
		v.Assigned = append(v.Assigned, restapi.AssignedTag{Tag: tag.Name, At: tag.At.Time})
	}
	for _, e := range build.Status.Log {
		v.Log = append(v.Log, restapi.BuildLogEntry{At: e.At.Time, Level: e.Level, Step: e.Step, Text: e.Text})
	}
	return v
}

// finished is when a build was Ready or Failed; zero: it goes on.
func finished(build *v1alpha1.TemplateBuild) time.Time {
	if p := build.Status.Phase; p != v1alpha1.BuildReady && p != v1alpha1.BuildFailed {
		return time.Time{}
	}
	return changed(build)
}

// changed is when a build got its phase.
func changed(build *v1alpha1.TemplateBuild) time.Time {
	if build.Status.PhaseAt == nil {
		return build.CreationTimestamp.Time
	}
	return build.Status.PhaseAt.Time
}
