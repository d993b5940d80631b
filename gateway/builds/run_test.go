package builds

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/builds/store"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/routing"
)

// A build copies its base, runs its steps in order in the builder, pushes the image, and ends
// the builder.
func TestBuild(t *testing.T) {
	w := newWorld(t)
	build := w.request()
	present, upload, err := w.builds.Files(t.Context(), caller, build.TemplateID, hash)
	if present || err != nil {
		t.Fatalf("%v, %v", present, err)
	}
	if err := w.builds.Upload(t.Context(), upload, build.TemplateID, hash, 5, strings.NewReader("files")); err != nil {
		t.Fatal(err)
	}
	err = w.builds.Start(t.Context(), caller, build.TemplateID, build.ID, restapi.Recipe{
		Image: w.image, Start: "serve", Password: "hunter2", Username: "u",
		Steps: []restapi.BuildStep{run("make"), {Type: "COPY", Args: []string{"x", "/to"}, Files: hash}, {Type: "ENV", Args: []string{"TOKEN", "secret-value"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := w.settled(build.ID, v1alpha1.BuildStarting, v1alpha1.BuildFailed)
	if done.Status.Phase != v1alpha1.BuildStarting || !strings.Contains(done.Status.Image, "/"+string(caller.NamespaceUID)+"@sha256:") || done.Status.Base == "" || done.Spec.Recipe.StartCommand != "serve" {
		t.Fatalf("%+v", done)
	}
	w.builds.Stop()
	if want := []string{
		": " + helper + " --add-user user", "user: /bin/bash -l -c make", "root: " + helper + " --unpack " + uploaded + " --from x --to /to --owner user",
	}; !slices.Equal(w.builder.ran, want) {
		t.Errorf("ran %q", w.builder.ran)
	}
	if w.builder.put != "root "+uploaded+" files" || len(w.builder.made) != 1 || w.builder.made[0].Pool != "build-"+build.ID || !slices.Equal(w.builder.ended, []string{w.builder.made[0].ID}) {
		t.Errorf("put %q, made %+v, ended %q", w.builder.put, w.builder.made, w.builder.ended)
	}
	ref, err := name.NewDigest(done.Status.Image)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil || !slices.Equal(config.Config.Env, []string{"PATH=/bin", "TOKEN=secret-value", "SANDBOXD_USER=user"}) {
		t.Errorf("%+v, %v", config.Config, err)
	}
	var lines []string
	for _, e := range done.Status.Log {
		lines = append(lines, e.Step+" "+e.Text)
	}
	said := strings.Join(lines, "\n")
	for _, want := range []string{"base FROM " + w.image, "1 RUN make", "1 done", "2 COPY x /to", "3 ENV TOKEN", "finalize "} {
		if !strings.Contains(said, want) {
			t.Errorf("the log has no %q:\n%s", want, said)
		}
	}
	if strings.Contains(said+w.log.String(), "hunter2") || strings.Contains(said+w.log.String(), "secret-value") {
		t.Error("a log has a secret")
	}
}

// A build is ready for its client when this gateway knows its name.
func TestReadyWithItsNames(t *testing.T) {
	w := newWorld(t)
	build := w.request()
	is := w.settled(build.ID, "")
	is.Status.Phase, is.Status.Image, is.Status.PhaseAt = v1alpha1.BuildReady, "x", new(metav1.Now())
	is.Status.Tags = []v1alpha1.BuildTag{{Name: "default"}, {Name: "v1"}}
	if err := w.api.Status().Update(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	pool := v1alpha1.TemplatePool(build.ID)
	for _, c := range []struct {
		names map[string]string
		want  string
	}{
		{nil, "building"}, {map[string]string{"x": pool}, "building"}, {map[string]string{"x": pool, "x:v1": "template-older"}, "building"},
		{map[string]string{"x": pool, "x:v1": pool}, "ready"},
	} {
		w.names = c.names
		if got, err := w.builds.Get(t.Context(), caller, build.TemplateID, build.ID); err != nil || got.State != c.want {
			t.Errorf("%v: %s, %v", c.names, got.State, err)
		}
	}
	w.names, is.Status.PhaseAt.Time = nil, time.Now().Add(-time.Hour)
	if err := w.api.Status().Update(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	if got, err := w.builds.Get(t.Context(), caller, build.TemplateID, build.ID); err != nil || got.State != "ready" {
		t.Errorf("one whose names another build has: %s, %v", got.State, err)
	}
}

// Each failure names its step and its reason, and ends the builder if it may exist.
func TestBuildFails(t *testing.T) {
	exits := func(code int, err error) func(context.Context, sandboxdclient.Command, func([]byte)) (int, error) {
		return func(_ context.Context, c sandboxdclient.Command, output func([]byte)) (int, error) {
			if c.User != "user" {
				return 0, nil
			}
			output([]byte("so it\ngoes"))
			return code, err
		}
	}
	for _, c := range []struct {
		what       string
		image      string
		change     func(*builder)
		step, said string
		built      bool
	}{
		{"a base that is not there", "/missing:1", nil, "base", "missing", false},
		{"a builder that does not start", "", func(b *builder) { b.create = func(context.Context) error { return restapi.ErrNoCapacity } }, "base", "builder did not start", true},
		{"a command that fails", "", func(b *builder) { b.run = exits(7, nil) }, "1", "exit status 7: so it\ngoes", true},
		{"a builder that is gone", "", func(b *builder) { b.run = exits(0, sandboxdclient.ErrNoAnswer) }, "1", "does not answer", true},
	} {
		w := newWorld(t)
		if c.change != nil {
			c.change(w.builder)
		}
		image := w.image
		if c.image != "" {
			image = strings.TrimSuffix(w.image, "/base:1") + c.image
		}
		build := w.request()
		if err := w.builds.Start(t.Context(), caller, build.TemplateID, build.ID, restapi.Recipe{Image: image, Steps: []restapi.BuildStep{run("x")}}); err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		failed := w.settled(build.ID, v1alpha1.BuildStarting, v1alpha1.BuildFailed)
		if failed.Status.Phase != v1alpha1.BuildFailed || failed.Status.Step != c.step || !strings.Contains(failed.Status.Message, c.said) || failed.Status.Image != "" {
			t.Errorf("%s: %+v", c.what, failed.Status)
		}
		w.builds.Stop()
		if len(w.builder.ended) != len(w.builder.made) || len(w.builder.made) > 0 != c.built {
			t.Errorf("%s: made %d builders, ended %d", c.what, len(w.builder.made), len(w.builder.ended))
		}
	}
}

// hangs is a command that goes on until its build is given up.
func hangs(begun chan<- struct{}) func(context.Context, sandboxdclient.Command, func([]byte)) (int, error) {
	return func(ctx context.Context, c sandboxdclient.Command, _ func([]byte)) (int, error) {
		if c.User != "user" {
			return 0, nil
		}
		begun <- struct{}{}
		<-ctx.Done()
		return 0, ctx.Err()
	}
}

// A gateway that stops says so, and leaves no builder.
func TestGatewayStops(t *testing.T) {
	w := newWorld(t)
	begun := make(chan struct{}, 1)
	w.builder.run = hangs(begun)
	build := w.request()
	if err := w.builds.Start(t.Context(), caller, build.TemplateID, build.ID, restapi.Recipe{Image: w.image, Steps: []restapi.BuildStep{run("x")}}); err != nil {
		t.Fatal(err)
	}
	<-begun
	w.builds.Stop()
	if failed := w.settled(build.ID, v1alpha1.BuildFailed); failed.Status.Step != "1" || !strings.Contains(failed.Status.Message, "stopped") {
		t.Errorf("%+v", failed.Status)
	}
	if len(w.builder.ended) != 1 {
		t.Errorf("ended %q", w.builder.ended)
	}
}

// A build that was deleted, or that the controller has given up, ends at this gateway, which
// does not write to it again.
func TestBuildGivenUp(t *testing.T) {
	for what, giveUp := range map[string]func(w *world, build *v1alpha1.TemplateBuild) error{
		"deleted": func(w *world, build *v1alpha1.TemplateBuild) error { return w.api.Delete(t.Context(), build) },
		"failed by the controller": func(w *world, build *v1alpha1.TemplateBuild) error {
			build.Status.Phase, build.Status.Message = v1alpha1.BuildFailed, "the gateway is gone"
			return w.api.Status().Update(t.Context(), build)
		},
	} {
		w := newWorld(t)
		begun := make(chan struct{}, 1)
		w.builder.run = hangs(begun)
		build := w.request()
		if err := w.builds.Start(t.Context(), caller, build.TemplateID, build.ID, restapi.Recipe{Image: w.image, Steps: []restapi.BuildStep{run("x")}}); err != nil {
			t.Fatal(err)
		}
		<-begun
		var err error
		for range 20 { // the gateway writes its log meanwhile
			is := &v1alpha1.TemplateBuild{}
			if err = w.api.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: build.ID}, is); err == nil {
				err = giveUp(w, is)
			}
			if err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		over := make(chan struct{})
		go func() { defer close(over); w.builds.running.Wait() }()
		select {
		case <-over: // the next write of the log has found out
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: it goes on", what)
		}
		if len(w.builder.ended) != 1 {
			t.Errorf("%s: ended %q", what, w.builder.ended)
		}
		is := &v1alpha1.TemplateBuild{}
		err = w.api.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: build.ID}, is)
		if what == "deleted" && err == nil || what != "deleted" && (err != nil || is.Status.Message != "the gateway is gone") {
			t.Errorf("%s: %+v, %v", what, is.Status, err)
		}
	}
}

// What is of another namespace is not found; a build starts once; an upload needs its own URL.
func TestBuildsRefuse(t *testing.T) {
	w := newWorld(t)
	build := w.request()
	if _, err := w.builds.Get(t.Context(), other, build.TemplateID, build.ID); !errors.Is(err, restapi.ErrNoBuild) {
		t.Errorf("get by another: %v", err)
	}
	if _, _, err := w.builds.Files(t.Context(), other, build.TemplateID, hash); !errors.Is(err, restapi.ErrNoBuild) {
		t.Errorf("files by another: %v", err)
	}
	if deleted, err := w.builds.Delete(t.Context(), other, build.TemplateID); deleted || err != nil {
		t.Errorf("deleted by another: %v, %v", deleted, err)
	}
	for what, c := range map[string]struct {
		by     routing.KeyOwner
		id     string
		recipe restapi.Recipe
		want   string
	}{
		"by another":              {other, build.ID, restapi.Recipe{Image: w.image}, restapi.ErrNoBuild.Error()},
		"of another ID":           {caller, "x", restapi.Recipe{Image: w.image}, restapi.ErrNoBuild.Error()},
		"a base not allowed":      {caller, build.ID, restapi.Recipe{Image: "elsewhere.example/x"}, "fromImage: "},
		"a text that is too long": {caller, build.ID, restapi.Recipe{Image: w.image, Steps: []restapi.BuildStep{run(strings.Repeat("x", maxRecipe+1))}}, "steps: their texts"},
		"no upload":               {caller, build.ID, restapi.Recipe{Image: w.image, Steps: []restapi.BuildStep{{Type: "COPY", Args: []string{"x", "y"}, Files: hash}}}, "steps[0]: " + store.ErrNoFiles.Error()},
	} {
		if err := w.builds.Start(t.Context(), c.by, build.TemplateID, c.id, c.recipe); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("start %s: %v, want %q", what, err, c.want)
		}
	}
	_, upload, err := w.builds.Files(t.Context(), caller, build.TemplateID, hash)
	if err != nil {
		t.Fatal(err)
	}
	over := strings.Join([]string{string(caller.NamespaceUID), caller.Namespace, build.ID, "1000"}, ".")
	for what, c := range map[string]struct{ upload, template, hash string }{
		"of another hash": {upload, build.TemplateID, strings.Repeat("b", 64)}, "of another template": {upload, "x", hash},
		"into another namespace": {strings.Replace(upload, string(caller.NamespaceUID), string(other.NamespaceUID), 1), build.TemplateID, hash},
		"of another build":       {strings.Replace(upload, build.ID, strings.Repeat("1", len(build.ID)), 1), build.TemplateID, hash},
		"without a permission":   {"", build.TemplateID, hash},
		"that is over":           {over + "." + w.builds.signature(over, build.TemplateID, hash), build.TemplateID, hash},
	} {
		if err := w.builds.Upload(t.Context(), c.upload, c.template, c.hash, 1, strings.NewReader("x")); !errors.Is(err, restapi.ErrUploadRefused) {
			t.Errorf("an upload %s: %v", what, err)
		}
	}
	if err := w.builds.Upload(t.Context(), upload, build.TemplateID, hash, maxUpload+1, strings.NewReader("x")); !errors.Is(err, restapi.ErrUploadTooLarge) {
		t.Errorf("an upload that is too large: %v", err)
	}
	if err := w.builds.Upload(t.Context(), upload, build.TemplateID, hash, 10, strings.NewReader("x")); err == nil {
		t.Error("an upload that is cut off was kept")
	}
	if err := w.builds.Start(t.Context(), caller, build.TemplateID, build.ID, restapi.Recipe{Image: w.image}); err != nil {
		t.Fatal(err)
	}
	if err := w.builds.Start(t.Context(), caller, build.TemplateID, build.ID, restapi.Recipe{Image: w.image}); !errors.Is(err, restapi.ErrBuildStarted) {
		t.Errorf("a second start: %v", err)
	}
	second, third := caller, caller
	second.KeyID, third.KeyID = "k2", "k3"
	for _, c := range []struct {
		by   routing.KeyOwner
		more int
	}{{caller, maxKeptOfKey - 1}, {second, maxKept - maxKeptOfKey}, {third, 0}} { // caller has one
		made := 0
		for ; made <= maxKept; made++ {
			if _, err = w.builds.Request(t.Context(), c.by, restapi.BuildRequest{Name: "y", Tags: []string{"default"}, CPUCount: 1, MemoryMB: 512}); err != nil {
				break
			}
		}
		if made != c.more || !errors.Is(err, restapi.ErrBuildLimit) {
			t.Errorf("the key %s has made %d builds, want %d more: %v", c.by.KeyID, made, c.more, err)
		}
	}
}

// A start that fails between the recipe and the status can be repeated, with the same recipe
// alone, and then runs once.
func TestStartAgain(t *testing.T) {
	w := newWorld(t)
	build := w.request()
	whole := w.builds.o.API
	away := interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
		return errors.New("the API server is away")
	}}
	recipe := restapi.Recipe{Image: w.image, Steps: []restapi.BuildStep{run("make")}}
	w.builds.o.API = interceptor.NewClient(w.api.(client.WithWatch), away)
	if err := w.builds.Start(t.Context(), caller, build.TemplateID, build.ID, recipe); err == nil {
		t.Fatal("it was started")
	}
	w.builds.o.API = whole
	if err := w.builds.Start(t.Context(), caller, build.TemplateID, build.ID, restapi.Recipe{Image: w.image, Steps: []restapi.BuildStep{run("other")}}); !errors.Is(err, restapi.ErrBuildStarted) {
		t.Errorf("another recipe: %v", err)
	}
	if err := w.builds.Start(t.Context(), caller, build.TemplateID, build.ID, recipe); err != nil {
		t.Fatal(err)
	}
	if err := w.builds.Start(t.Context(), caller, build.TemplateID, build.ID, recipe); !errors.Is(err, restapi.ErrBuildStarted) {
		t.Errorf("a third start: %v", err)
	}
	w.settled(build.ID, v1alpha1.BuildStarting)
	w.builds.Stop()
	if n := len(w.builder.made); n != 1 || len(w.builds.of) > 0 {
		t.Errorf("%d builders, and %v still count", n, w.builds.of)
	}
}

// Builds of an API key, and of a namespace, beyond those that may run at a gateway are refused until
// one is over, and those of all namespaces together wait for each other.
func TestRunningAtOnce(t *testing.T) {
	w := newWorld(t)
	begun := make(chan struct{}, 1)
	w.builder.run = hangs(begun)
	start := func(key string, builds int) (err error) {
		by := caller
		by.KeyID = key
		for range builds {
			build := w.request()
			err = w.builds.Start(t.Context(), by, build.TemplateID, build.ID, restapi.Recipe{Image: w.image, Steps: []restapi.BuildStep{run("x")}})
		}
		return err
	}
	for range maxAtOnce - 1 {
		w.builds.atOnce <- struct{}{}
	}
	for i, c := range []struct {
		key     string
		builds  int
		refused bool
	}{{"k", maxRunningOfKey, false}, {"k", 1, true}, {"k2", maxRunning - maxRunningOfKey, false}, {"k3", 1, true}} {
		if err := start(c.key, c.builds); errors.Is(err, restapi.ErrBuildLimit) != c.refused || err != nil && !c.refused {
			t.Fatalf("%d: %d builds of %s: %v, want them refused: %v", i, c.builds, c.key, err, c.refused)
		}
	}
	<-begun
	if w.builder.mu.Lock(); len(w.builder.made) != 1 {
		t.Errorf("%d builders", len(w.builder.made))
	}
	w.builder.mu.Unlock()
	w.builds.Stop()
	if len(w.builds.of) > 0 {
		t.Errorf("%v still count", w.builds.of)
	}
}
