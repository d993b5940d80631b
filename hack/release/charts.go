package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
)

// The media types by which Helm knows its charts in registries:
// https://helm.sh/docs/topics/registries/#oci-feature-support.
const (
	chartConfig  = types.MediaType("application/vnd.cncf.helm.config.v1+json")
	chartContent = types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")
)

// addCharts packs each chart in the version of the release, into a file of the folder and into
// its layout.
func addCharts(o options, stdout io.Writer) error {
	sources, err := filepath.Glob(filepath.Join(o.charts, "*", chartutil.ChartfileName))
	if err != nil || len(sources) == 0 {
		return errors.Join(err, fmt.Errorf("there are no charts in %s", o.charts))
	}
	at, err := layout.FromPath(filepath.Join(o.dir, layoutFolder))
	if errors.Is(err, fs.ErrNotExist) {
		at, err = layout.Write(filepath.Join(o.dir, layoutFolder), mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	}
	if err != nil {
		return fmt.Errorf("open the release's layout: %w", err)
	}
	for _, source := range sources {
		c, err := loader.LoadDir(filepath.Dir(source))
		if err != nil {
			return fmt.Errorf("load the chart of %s: %w", source, err)
		}
		// Helm's own check refuses a v in a chart's version.
		c.Metadata.Version, c.Metadata.AppVersion = strings.TrimPrefix(o.version, "v"), o.version
		setTimes(c, o.created)
		path, err := chartutil.Save(c, o.dir)
		if err != nil {
			return fmt.Errorf("pack the chart %s: %w", c.Name(), err)
		}
		if err := addArtefact(at, c.Metadata, path, o.created); err != nil {
			return fmt.Errorf("add the chart %s to the layout: %w", c.Name(), err)
		}
		fmt.Fprintln(stdout, path)
	}
	return nil
}

// setTimes gives all files of a chart one time: that of a checkout says nothing.
func setTimes(c *chart.Chart, to time.Time) {
	c.ModTime, c.SchemaModTime = to, to
	for _, f := range c.Raw {
		f.ModTime = to
	}
	for _, f := range c.Templates {
		f.ModTime = to
	}
	for _, f := range c.Files {
		f.ModTime = to
	}
}

// addArtefact adds a packed chart to the layout, as `helm push` makes it of one.
func addArtefact(at layout.Path, about *chart.Metadata, path string, created time.Time) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	config, err := json.Marshal(about)
	if err != nil {
		return err
	}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Annotations: map[string]string{
		specs.AnnotationTitle: about.Name, specs.AnnotationDescription: about.Description, specs.AnnotationVersion: about.Version,
		specs.AnnotationCreated: created.Format(time.RFC3339),
	}}
	if manifest.Config, err = addBlob(at, chartConfig, config); err != nil {
		return err
	}
	layer, err := addBlob(at, chartContent, content)
	if err != nil {
		return err
	}
	manifest.Layers = []v1.Descriptor{layer}
	text, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	descriptor, err := addBlob(at, types.OCIManifestSchema1, text)
	if err != nil {
		return err
	}
	name := "charts/" + about.Name + ":" + about.Version
	descriptor.Annotations = map[string]string{specs.AnnotationRefName: name}
	if err := at.RemoveDescriptors(match.Name(name)); err != nil {
		return err
	}
	return at.AppendDescriptor(descriptor)
}

func addBlob(at layout.Path, media types.MediaType, content []byte) (v1.Descriptor, error) {
	hash, size, err := v1.SHA256(bytes.NewReader(content))
	if err != nil {
		return v1.Descriptor{}, err
	}
	return v1.Descriptor{MediaType: media, Size: size, Digest: hash}, at.WriteBlob(hash, io.NopCloser(bytes.NewReader(content)))
}
