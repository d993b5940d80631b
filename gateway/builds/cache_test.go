package builds

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
)

// build runs a build to its image, and returns both with the shell commands that were run for it.
func (w *world) build(r restapi.Recipe) (done *v1alpha1.TemplateBuild, ran []string) {
	w.t.Helper()
	w.builder.mu.Lock()
	w.builder.ran = nil
	w.builder.mu.Unlock()
	made := w.request()
	if err := w.builds.Start(w.t.Context(), caller, made.TemplateID, made.ID, r); err != nil {
		w.t.Fatal(err)
	}
	if done = w.settled(made.ID, v1alpha1.BuildStarting, v1alpha1.BuildFailed); done.Status.Phase != v1alpha1.BuildStarting {
		w.t.Fatal(done.Status.Message)
	}
	w.builds.running.Wait()
	w.builder.mu.Lock()
	defer w.builder.mu.Unlock()
	for _, command := range w.builder.ran {
		if _, text, shell := strings.Cut(command, "/bin/bash -l -c "); shell {
			ran = append(ran, text)
		}
	}
	return done, ran
}

func (w *world) upload(hash, content string) {
	w.t.Helper()
	template := templateID(caller, "x")
	w.request()
	_, upload, err := w.builds.Files(w.t.Context(), caller, template, hash)
	if err == nil {
		err = w.builds.Upload(w.t.Context(), upload, template, hash, int64(len(content)), strings.NewReader(content))
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// A build takes from an earlier one what its first steps have made, as far as all that these depend
// on is the same, and does the others.
func TestStepsAreReused(t *testing.T) {
	w := newWorld(t)
	w.upload(hash, "one")
	env := func(value string) restapi.BuildStep {
		return restapi.BuildStep{Type: "ENV", Args: []string{"V", value}}
	}
	files := restapi.BuildStep{Type: "COPY", Args: []string{"x", "/to"}, Files: hash}
	forced := func(s restapi.BuildStep) restapi.BuildStep { s.Force = true; return s }
	of := func(steps ...restapi.BuildStep) restapi.Recipe { return restapi.Recipe{Image: w.image, Steps: steps} }
	first, ran := w.build(of(run("a"), files, run("b"), env("1"), run("c")))
	if !slices.Equal(ran, []string{"a", "b", "c"}) || !slices.Equal(w.builder.archived, []sandboxdclient.Mark{0, 1, 2}) {
		t.Fatalf("ran %q, made images of what was changed since %v", ran, w.builder.archived)
	}
	builders := len(w.builder.made)
	same, ran := w.build(of(run("a"), files, run("b"), env("1"), run("c")))
	if len(ran) > 0 || len(w.builder.made) != builders || same.Status.Image != first.Status.Image || same.Status.Base != "" {
		t.Errorf("the same again: ran %q, %d builders, image %s, want %s", ran, len(w.builder.made)-builders, same.Status.Image, first.Status.Image)
	}
	if log := same.Status.Log; !slices.ContainsFunc(log, func(e v1alpha1.BuildLogEntry) bool { return e.Step == "1" && e.Text == "CACHED RUN a" }) {
		t.Errorf("the log does not say so: %+v", log)
	}
	for _, c := range []struct {
		what   string
		recipe restapi.Recipe
		want   []string
	}{
		{"one step more", of(run("a"), files, run("b"), env("1"), run("c"), run("d")), []string{"d"}},
		{"another variable", of(run("a"), files, run("b"), env("2"), run("c")), []string{"c"}},
		{"a step changed", of(run("a"), files, run("other"), env("1"), run("c")), []string{"other", "c"}},
		{"another user", of(restapi.BuildStep{Type: "RUN", Args: []string{"a", "root"}}, files, run("b")), []string{"a", "b"}},
		{"a step forced", of(run("a"), files, forced(run("b")), env("1"), run("c")), []string{"b", "c"}},
		{"the first forced", of(forced(run("a")), files, run("b")), []string{"a", "b"}},
		{"all forced", restapi.Recipe{Image: w.image, Force: true, Steps: []restapi.BuildStep{run("a")}}, []string{"a"}},
	} {
		if _, ran := w.build(c.recipe); !slices.Equal(ran, c.want) {
			t.Errorf("%s: ran %q, want %q", c.what, ran, c.want)
		}
	}
	w.upload(hash, "two") // the client's hash says nothing
	if _, ran := w.build(of(run("a"), files, run("b"))); !slices.Equal(ran, []string{"b"}) {
		t.Errorf("other content of the same hash: ran %q", ran)
	}
}

// What a step made of a build that failed later is reused too.
func TestStepsOfAFailedBuildAreReused(t *testing.T) {
	w := newWorld(t)
	w.builder.run = func(_ context.Context, c sandboxdclient.Command, _ func([]byte)) (int, error) {
		if slices.Contains(c.Args, "bad") {
			return 1, nil
		}
		return 0, nil
	}
	made := w.request()
	if err := w.builds.Start(t.Context(), caller, made.TemplateID, made.ID, restapi.Recipe{Image: w.image, Steps: []restapi.BuildStep{run("a"), run("bad")}}); err != nil {
		t.Fatal(err)
	}
	w.settled(made.ID, v1alpha1.BuildFailed)
	w.builds.running.Wait()
	w.builder.run = nil
	if _, ran := w.build(restapi.Recipe{Image: w.image, Steps: []restapi.BuildStep{run("a"), run("good")}}); !slices.Equal(ran, []string{"good"}) {
		t.Errorf("ran %q", ran)
	}
}
