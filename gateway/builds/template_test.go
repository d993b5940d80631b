package builds

import (
	"context"
	"errors"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
)

// A build from a template begins with its image, user, variables, folder and commands, by the tag
// that it names, and with nothing of a template of another namespace.
func TestFromTemplate(t *testing.T) {
	w := newWorld(t)
	build := func(r restapi.Recipe, tags ...string) *v1alpha1.TemplateBuild {
		made := w.request()
		if err := w.builds.Start(t.Context(), caller, made.TemplateID, made.ID, r); err != nil {
			t.Fatal(err)
		}
		done := w.settled(made.ID, v1alpha1.BuildStarting, v1alpha1.BuildFailed)
		if done.Status.Phase != v1alpha1.BuildStarting {
			t.Fatal(done.Status.Message)
		}
		for _, tag := range tags {
			done.Status.Tags = append(done.Status.Tags, v1alpha1.BuildTag{Name: tag, At: metav1.NowMicro()})
		}
		if done.Status.Phase = v1alpha1.BuildReady; len(tags) > 0 {
			if err := w.api.Status().Update(t.Context(), done); err != nil {
				t.Fatal(err)
			}
		}
		return done
	}
	first := build(restapi.Recipe{Image: w.image, Start: "serve", Ready: "ask", Steps: []restapi.BuildStep{
		{Type: "USER", Args: []string{"other"}}, {Type: "ENV", Args: []string{"COLOUR", "green"}}, {Type: "WORKDIR", Args: []string{"/srv"}},
	}}, "v1")
	build(restapi.Recipe{Image: w.image}, "default")
	w.builder.mu.Lock()
	w.builder.ran, w.builder.run = nil, func(_ context.Context, c sandboxdclient.Command, _ func([]byte)) (int, error) {
		if c.Program == "/bin/bash" && c.Dir != "/srv" {
			t.Errorf("the step runs in %s", c.Dir)
		}
		return 0, nil
	}
	w.builder.mu.Unlock()
	second := build(restapi.Recipe{Template: "x", Tag: "v1", Steps: []restapi.BuildStep{run("make")}})
	if r := second.Spec.Recipe; second.Status.Base != first.Status.Image || r.FromTemplate != "x:v1" || r.StartCommand != "serve" || r.ReadyCommand != "ask" {
		t.Errorf("base %s, want %s; %+v", second.Status.Base, first.Status.Image, r)
	}
	if want := "other: /bin/bash -l -c make"; !slices.Contains(w.builder.ran, want) {
		t.Errorf("ran %q, want %q", w.builder.ran, want)
	}
	third := build(restapi.Recipe{Template: "x", Tag: "v1", Ready: "ask otherwise"})
	if r := third.Spec.Recipe; r.StartCommand != "" || r.ReadyCommand != "ask otherwise" {
		t.Errorf("%+v", r)
	}
	for what, r := range map[string]restapi.Recipe{"another tag": {Template: "x", Tag: "v9"}, "no template": {Template: "y", Tag: "default"}} {
		made := w.request()
		var refused *restapi.RefusedBuildError
		if err := w.builds.Start(t.Context(), caller, made.TemplateID, made.ID, r); !errors.As(err, &refused) {
			t.Errorf("%s: %v", what, err)
		}
	}
	theirs, err := w.builds.Request(t.Context(), other, restapi.BuildRequest{Name: "x", Tags: []string{"default"}, CPUCount: 1, MemoryMB: 512})
	if err != nil {
		t.Fatal(err)
	}
	var refused *restapi.RefusedBuildError
	for _, template := range []string{"x", first.Spec.TemplateID} {
		if err := w.builds.Start(t.Context(), other, theirs.TemplateID, theirs.ID, restapi.Recipe{Template: template, Tag: "v1"}); !errors.As(err, &refused) {
			t.Errorf("by another namespace: %v", err)
		}
	}
}
