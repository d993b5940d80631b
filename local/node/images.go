package node

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Image is an entry of the image table: what a container of this image runs.
type Image struct {
	// Command is the entry point; its first element is a file of this machine
	// or a program on the PATH inside.
	Command []string `json:"command"`
	// Env are variables that the container's own override.
	Env map[string]string `json:"env,omitempty"`
	// Digest is "sha256:…", shown in the container's status.
	Digest string `json:"digest"`
}

// errImageUnknown is the kubelet's ErrImagePull.
type errImageUnknown struct{ image string }

func (e *errImageUnknown) Error() string {
	return fmt.Sprintf("image %q is not in this node's image table", e.image)
}

// lookupImage reads the table, which may change at any time, and finds image:
// name, name:tag (default latest) or name@digest.
func lookupImage(table, image string) (Image, error) {
	raw, err := os.ReadFile(table)
	if err != nil {
		return Image{}, fmt.Errorf("read the image table: %w", err)
	}
	var all map[string]Image
	if err := json.Unmarshal(raw, &all); err != nil {
		return Image{}, fmt.Errorf("parse the image table: %w", err)
	}
	name, digest, _ := strings.Cut(image, "@")
	for key, entry := range all {
		if len(entry.Command) == 0 || withTag(key) != withTag(name) && digest == "" {
			continue
		}
		if digest == "" || digest == entry.Digest && withoutTag(key) == withoutTag(name) {
			return entry, nil
		}
	}
	return Image{}, &errImageUnknown{image}
}

func withTag(name string) string {
	if withoutTag(name) == name {
		return name + ":latest"
	}
	return name
}

func withoutTag(name string) string {
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[:i]
	}
	return name
}

// imageID is what the container status shows.
func imageID(image string, entry Image) string {
	name, _, _ := strings.Cut(image, "@")
	if entry.Digest == "" {
		return withTag(name)
	}
	return withoutTag(name) + "@" + entry.Digest
}
