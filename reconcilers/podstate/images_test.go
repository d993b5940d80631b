package podstate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const (
	digestA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	digestB = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func TestDigestOf(t *testing.T) {
	for imageID, want := range map[string]string{
		"docker.io/library/echo@" + digestA:                   digestA, // containerd, CRI-O
		"docker-pullable://docker.io/library/echo@" + digestA: digestA,
		digestA:                  digestA, // containerd, imported
		digestA[len("sha256:"):]: digestA, // CRI-O, by configuration
		"local/echo:latest":      "",
		"":                       "",
	} {
		if got := digestOf(imageID); got != want {
			t.Errorf("%s: %q, want %q", imageID, got, want)
		}
	}
}

// TestImageChange is a kubelet's way through an in-place image change, with what
// different runtimes report on it.
func TestImageChange(t *testing.T) {
	const before = "run://1"
	for _, tt := range []struct {
		name           string
		wanted         string // image of the spec; it was local/echo
		id             string
		restarts       int32
		image, imageID string // as reported
		down           bool
		want           imageState
	}{
		{"not changed", "local/echo", before, 0, "local/echo:latest", "", false, imageRuns},
		{"not changed, reported under another tag", "local/echo", before, 0, "local/twin:1", "local/twin@" + digestA, false, imageRuns},
		{"the old one runs", "local/next", before, 0, "local/echo:latest", "local/echo@" + digestA, false, imageWaits},
		{"the old one runs, and is reported under the new tag of its digest", "local/next", before, 0, "local/next:latest", "local/echo@" + digestA, false, imageWaits},
		{"the new one is pulled", "local/next", before, 0, "local/next:latest", "", true, imageWaits},
		{"the new one runs", "local/next", "run://2", 1, "local/next:latest", "local/next@" + digestB, false, imageRuns},
		{"the new one runs, with its full name", "next", "run://2", 1, "docker.io/library/next:latest", "docker.io/library/next@" + digestB, false, imageRuns},
		{"the new one runs, its tag has moved", "local/next:1", "run://2", 1, "local/next:1", "local/next@" + digestA, false, imageRuns},
		{"the new one runs, reported under another tag of its digest", "local/next", "run://2", 1, "local/twin:1", "local/twin@" + digestB, false, imageUnclear},
		{"the old one was started again first", "local/next", "run://2", 1, "local/echo:latest", "local/echo@" + digestA, false, imageUnclear},
		{"pinned", "local/next@" + digestB, "run://2", 1, "local/twin:1", "local/twin@" + digestB, false, imageRuns},
		{"pinned, without a tag", "local/next@" + digestB, "run://2", 1, digestB, digestB, false, imageRuns},
		{"pinned, the old one was started again first", "local/next@" + digestB, "run://2", 1, "local/echo:latest", "local/echo@" + digestA, false, imageUnclear},
		{"no container ID, but a restart", "local/next", "", 1, "local/next:latest", "", false, imageRuns},
		{"no container ID, no restart", "local/next", "", 0, "local/next:latest", "", false, imageWaits},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &corev1.Container{Name: "main", Image: tt.wanted}
			s := &corev1.ContainerStatus{Name: "main", ContainerID: tt.id, RestartCount: tt.restarts, Image: tt.image, ImageID: tt.imageID}
			if !tt.down {
				s.State.Running = &corev1.ContainerStateRunning{}
			}
			if got := judgeImage(c, s, Container{Image: "local/echo", ID: before}, true); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
