package builds

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
)

// stored is the sum of what a build says that the registry keeps for it.
func stored(b *v1alpha1.TemplateBuild) (sum int64) {
	for _, l := range b.Status.Stored {
		sum += l.Size
	}
	return sum
}

// A key may have so many bytes of uploads, bases and layers; what several of its builds have counts
// once, and what another key has does not. At the bound no build is requested and no upload taken,
// and one that runs fails with a sentence and has no image.
func TestBytesOfAKey(t *testing.T) {
	w := newWorld(t)
	const content = "a file of some bytes"
	w.upload(hash, content)
	files := restapi.BuildStep{Type: "COPY", Args: []string{"x", "/to"}, Files: hash}
	first, _ := w.build(restapi.Recipe{Image: w.image, Steps: []restapi.BuildStep{files, run("a")}})
	used := stored(first)
	if used == 0 || len(first.Status.Stored) < 1 {
		t.Fatalf("stored %+v", first.Status.Stored)
	}
	room := func() int64 {
		left, err := w.builds.room(t.Context(), "a", caller.KeyID)
		if err != nil {
			t.Fatal(err)
		}
		return left
	}
	before := room()
	w.build(restapi.Recipe{Image: w.image, Steps: []restapi.BuildStep{files, run("a")}}) // all of it is there
	if now := room(); now != before {
		t.Errorf("a build of the same steps took %d bytes", before-now)
	}
	if left, err := w.builds.room(t.Context(), "a", "another"); err != nil || left != maxBytesOfKey {
		t.Errorf("another key has %d bytes left, %v", left, err)
	}

	waiting := w.request()
	_, allowed, err := w.builds.Files(t.Context(), caller, waiting.TemplateID, strings.Repeat("b", 64))
	if err != nil {
		t.Fatal(err)
	}
	w.builds.maxBytes = maxBytesOfKey - room() + 5 // five more
	err = w.builds.Upload(t.Context(), allowed, waiting.TemplateID, strings.Repeat("b", 64), 6, strings.NewReader("sixsix"))
	if present, _, _ := w.builds.Files(t.Context(), caller, waiting.TemplateID, strings.Repeat("b", 64)); !errors.Is(err, restapi.ErrBuildBytes) || present {
		t.Errorf("an upload of more bytes than are left: %v, kept: %v", err, present)
	}
	if err := w.builds.Start(t.Context(), caller, waiting.TemplateID, waiting.ID, restapi.Recipe{Image: w.image, Steps: []restapi.BuildStep{run("more")}}); err != nil {
		t.Fatal(err)
	}
	failed := w.settled(waiting.ID, v1alpha1.BuildFailed)
	if failed.Status.Message != errBytes.Error() || failed.Status.Step != "1" || failed.Status.Image != "" {
		t.Errorf("at step %s: %q, image %q", failed.Status.Step, failed.Status.Message, failed.Status.Image)
	}
	w.builds.running.Wait()
	if room() < 0 {
		t.Errorf("more than the bound by %d bytes", -room())
	}
	w.builds.maxBytes -= 5
	if _, err := w.builds.Request(t.Context(), caller, restapi.BuildRequest{Name: "y", Tags: []string{"default"}, CPUCount: 1, MemoryMB: 512}); !errors.Is(err, restapi.ErrBuildBytes) {
		t.Errorf("a request at the bound: %v", err)
	}
	second := caller
	second.KeyID = "another"
	if _, err := w.builds.Request(t.Context(), second, restapi.BuildRequest{Name: "y", Tags: []string{"default"}, CPUCount: 1, MemoryMB: 512}); err != nil {
		t.Errorf("a request of another key: %v", err)
	}

	// What an earlier build has made counts for a key that takes it.
	w.builds.maxBytes = 1
	second.KeyID = "third"
	taking, err := w.builds.Request(t.Context(), second, restapi.BuildRequest{Name: "x", Tags: []string{"default"}, CPUCount: 1, MemoryMB: 512})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.builds.Start(t.Context(), second, taking.TemplateID, taking.ID, restapi.Recipe{Image: w.image, Steps: []restapi.BuildStep{files, run("a")}}); err != nil {
		t.Fatal(err)
	}
	if failed := w.settled(taking.ID, v1alpha1.BuildFailed, v1alpha1.BuildStarting); failed.Status.Message != errBytes.Error() {
		t.Errorf("%s: %q", failed.Status.Phase, failed.Status.Message)
	}
}

// Uploads at once never pass the bound together, and those that are refused count no more.
func TestBytesOfAKeyAtOnce(t *testing.T) {
	const uploads, size = 6, 6
	w := newWorld(t)
	w.builds.maxBytes = size + size/2
	var all sync.WaitGroup
	start, results := make(chan struct{}), make(chan error, uploads)
	for i := range uploads {
		build := w.request()
		hash := strings.Repeat(strconv.Itoa(i), 64)
		_, allowed, err := w.builds.Files(t.Context(), caller, build.TemplateID, hash)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			<-start
			results <- w.builds.Upload(t.Context(), allowed, build.TemplateID, hash, size, strings.NewReader("upload"[:size-1]+strconv.Itoa(i)))
		})
	}
	close(start)
	all.Wait()
	taken := int64(0)
	for range uploads {
		switch err := <-results; {
		case err == nil:
			taken++
		case !errors.Is(err, restapi.ErrBuildBytes):
			t.Error(err)
		}
	}
	left, err := w.builds.room(t.Context(), "a", caller.KeyID)
	if err != nil || left < 0 || left != w.builds.maxBytes-taken*size {
		t.Errorf("%d of %d were taken, %d bytes are left, %v", taken, uploads, left, err)
	}
}
