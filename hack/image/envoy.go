package main

import (
	"context"
	"errors"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// moduleFolder is where Envoy's images have the module of the fast path; the chart has
// the same.
const moduleFolder = "usr/local/lib/sandlane"

// provenOn is the architecture that there is a module for.
const provenOn = "amd64"

func (b *builder) moduleFile() entry {
	return entry{path: moduleFolder + "/fastpath.so", mode: 0o755, file: b.module}
}

// envoyWithModule is Envoy's own image and the module of the fast path. For an
// architecture that has no module it is Envoy's own, so that one name is for all.
func (b *builder) envoyWithModule(ctx context.Context, p v1.Platform) (v1.Image, error) {
	if b.envoyBase == "" {
		return nil, errors.New("-envoy-base must name Envoy's image, such as envoyproxy/envoy:distroless-v1.40.0")
	}
	wanted := []string{"usr", "usr/local", "usr/local/lib", moduleFolder}
	g, err := pull(ctx, b.envoyBase, p, wanted)
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, f := range wanted {
		if !g.folders[f] {
			entries = append(entries, folder(f, 0o755))
		}
	}
	if p.Architecture == provenOn {
		entries = append(entries, b.moduleFile())
	} else {
		fmt.Fprintf(b.stdout, "note: the fast path is not proven on %s: %s for it has no module\n", p.Architecture, envoyName)
	}
	media, err := layerMedia(g.image)
	if err != nil {
		return nil, err
	}
	layer, err := layerOf(entries, b.created, media)
	if err != nil {
		return nil, fmt.Errorf("%w (hack/fastpath.sh builds the module)", err)
	}
	return b.finish(g.image, p, layer, func(c *v1.Config) {
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels["org.opencontainers.image.base.name"] = g.name
		c.Labels["org.opencontainers.image.base.digest"] = g.digest
	}, envoyName, "Envoy with the module by which it answers requests for known sandboxes")
}
