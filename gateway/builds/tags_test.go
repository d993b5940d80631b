package builds

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
)

// ready makes a build of the template x that is Ready and was given tags at a time.
func (w *world) ready(at time.Time, tags ...string) restapi.Build {
	w.t.Helper()
	build, is := w.request(), &v1alpha1.TemplateBuild{}
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: "a", Name: build.ID}, is); err != nil {
		w.t.Fatal(err)
	}
	is.Status.Phase, is.Status.Image = v1alpha1.BuildReady, "image"
	for _, tag := range tags {
		is.Status.Tags = append(is.Status.Tags, v1alpha1.BuildTag{Name: tag, At: metav1.NewMicroTime(at)})
	}
	if err := w.api.Status().Update(w.t.Context(), is); err != nil {
		w.t.Fatal(err)
	}
	return build
}

// holders are the builds that have the tags of the template x.
func (w *world) holders() map[string]string {
	w.t.Helper()
	all, ids := v1alpha1.TemplateBuildList{}, map[string]string{}
	if err := w.api.List(w.t.Context(), &all); err != nil {
		w.t.Fatal(err)
	}
	for tag, build := range v1alpha1.TagHolders(all.Items) {
		ids[tag] = build.Name
	}
	return ids
}

// A tag moves to the build that another tag names, whatever clock wrote when it had it; one that
// is removed is no build's, also not that of one which had it before. A change is over when this
// gateway knows of it.
func TestTags(t *testing.T) {
	w := newWorld(t)
	old := w.ready(time.Now().Add(-time.Hour), "default", "v1")
	newer := w.ready(time.Now().Add(time.Hour), "default", "v2") // by a clock that is ahead
	w.names = map[string]string{"x": v1alpha1.TemplatePool(old.ID), "x:v2": v1alpha1.TemplatePool(old.ID), "x:v3": v1alpha1.TemplatePool(old.ID)}
	id, err := w.builds.Assign(t.Context(), caller, "x", "v1", []string{"default", "v3", "v2"})
	if err != nil || id != old.ID {
		t.Fatalf("assigned to %q, %v", id, err)
	}
	if got := w.holders(); got["default"] != old.ID || got["v1"] != old.ID || got["v2"] != old.ID || got["v3"] != old.ID {
		t.Errorf("after the assignment: %v", got)
	}
	// By the template's ID too, and again.
	if _, err := w.builds.Assign(t.Context(), caller, old.TemplateID, "v3", []string{"v2"}); err != nil {
		t.Error(err)
	}
	all, err := w.builds.List(t.Context(), caller, "x")
	if err != nil || len(all) != 2 || all[0].Log != nil || len(all[0].Assigned)+len(all[1].Assigned) != 6 {
		t.Errorf("%+v, %v", all, err)
	}
	delete(w.names, "x:v2")
	if err := w.builds.Remove(t.Context(), caller, "x", []string{"v2", "none"}); err != nil {
		t.Fatal(err)
	}
	if got := w.holders(); got["v2"] != "" || got["v3"] != old.ID {
		t.Errorf("after the removal: %v; %s had it before", got, newer.ID)
	}
	// It is not known here yet.
	brief, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := w.builds.Assign(brief, caller, "x", "v1", []string{"v4"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an assignment that this gateway does not know of: %v", err)
	}
	brief, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := w.builds.Remove(brief, caller, "x", []string{"v3"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a removal that this gateway does not know of: %v", err)
	}
}

// Tags and builds of another namespace's template are not found, and stay.
func TestTagsOfAnother(t *testing.T) {
	w := newWorld(t)
	build := w.ready(time.Now(), "default")
	w.names = map[string]string{"x:v1": v1alpha1.TemplatePool(build.ID)} // so that no change is waited for
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for what, idOrName := range map[string]string{"by its name": "x", "by its ID": build.TemplateID, "of a form that no label has": "-x/"} {
		if all, err := w.builds.List(ctx, other, idOrName); !errors.Is(err, restapi.ErrNoBuild) {
			t.Errorf("list %s: %v, %v", what, all, err)
		}
		if _, err := w.builds.Assign(ctx, other, idOrName, "default", []string{"v1"}); !errors.Is(err, restapi.ErrNoBuild) {
			t.Errorf("assign %s: %v", what, err)
		}
		if err := w.builds.Remove(ctx, other, idOrName, []string{"default"}); !errors.Is(err, restapi.ErrNoBuild) {
			t.Errorf("remove %s: %v", what, err)
		}
	}
	if _, err := w.builds.Assign(ctx, caller, "x", "none", []string{"v1"}); !errors.Is(err, restapi.ErrNoBuild) {
		t.Errorf("of a tag that no build has: %v", err)
	}
	many := make([]string, 0, maxTags)
	for i := range maxTags {
		many = append(many, "t"+string(rune('a'+i/26))+string(rune('a'+i%26)))
	}
	var refused *restapi.RefusedBuildError
	if _, err := w.builds.Assign(ctx, caller, "x", "default", many); !errors.As(err, &refused) {
		t.Errorf("more tags than a build may have: %v", err)
	}
	if got := w.holders(); len(got) != 1 || got["default"] != build.ID {
		t.Errorf("the tags are %v", got)
	}
	if !slices.Equal(templateIDs(caller, "-x/"), []string{templateID(caller, "-x/")}) {
		t.Error("a text that no label can have is looked for as one")
	}
}
