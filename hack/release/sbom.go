package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// program is a program or a Python package of the release, however often it is there.
type program struct {
	name    string // of its file, or of its place in a bundle or image
	sum     string
	version string
	modules []string // as path@version
	python  string   // for a wheel, its package's name
}

// programs are those of a release, by their sums.
type programs map[string]*program

// add notes content that is a program or a wheel.
func (all programs) add(name, version string, content []byte) {
	python := ""
	if wheel := path.Base(name); strings.HasSuffix(wheel, ".whl") {
		// NAME-VERSION-…: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
		python, wheel, _ = strings.Cut(wheel, "-")
		version, _, _ = strings.Cut(wheel, "-")
	} else if !bytes.HasPrefix(content, []byte("\x7fELF")) {
		return
	}
	hash := sha256.Sum256(content)
	sum := hex.EncodeToString(hash[:])
	if all[sum] != nil {
		return
	}
	p := &program{name: name, sum: sum, version: version, python: python}
	if info, err := buildinfo.Read(bytes.NewReader(content)); err == nil { // else it is not of Go
		p.modules = append(p.modules, "stdlib@"+strings.TrimPrefix(info.GoVersion, "go"))
		for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
			if m.Replace != nil {
				m = m.Replace
			}
			if m.Version != "" && m.Version != "(devel)" {
				p.modules = append(p.modules, m.Path+"@"+m.Version)
			}
		}
	}
	all[sum] = p
}

// addTar notes the programs of an archive.
func (all programs) addTar(name, version string, from io.Reader) error {
	for entries := tar.NewReader(from); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(entries)
		if err != nil {
			return fmt.Errorf("read %s of %s: %w", header.Name, name, err)
		}
		all.add(name+"/"+path.Clean(header.Name), version, content)
	}
}

// addImages notes the programs of an index's images.
func (all programs) addImages(name, version string, index v1.ImageIndex) error {
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, one := range manifest.Manifests {
		called := cmp.Or(one.Annotations[specs.AnnotationRefName], name)
		switch {
		case one.MediaType.IsIndex():
			below, err := index.ImageIndex(one.Digest)
			if err != nil {
				return err
			}
			if err := all.addImages(called, version, below); err != nil {
				return err
			}
		case strings.HasPrefix(called, "charts/"):
		default:
			image, err := index.Image(one.Digest)
			if err != nil {
				return err
			}
			if one.Platform != nil {
				called += "-" + one.Platform.OS + "-" + one.Platform.Architecture
			}
			files := mutate.Extract(image)
			if err := errors.Join(all.addTar(called, version, files), files.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// find notes the programs of the release: those of its folder, bundles and images.
func find(o options) (programs, error) {
	all := programs{}
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := filepath.Join(o.dir, entry.Name())
		switch {
		case strings.HasPrefix(entry.Name(), "sandlane-bundle-"):
			f, err := os.Open(name)
			if err != nil {
				return nil, err
			}
			unzipped, err := gzip.NewReader(f)
			if err == nil {
				err = all.addTar(entry.Name(), "", unzipped)
			}
			if err := errors.Join(err, f.Close()); err != nil {
				return nil, err
			}
		case strings.HasPrefix(entry.Name(), "sandlane-") && entry.Type().IsRegular():
			content, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			all.add(entry.Name(), o.version, content)
		}
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(o.dir, layoutFolder))
	if err != nil {
		return nil, err
	}
	return all, all.addImages("", o.version, index)
}

// writeSBOM says in SPDX which programs and Python packages the release has, and of which modules
// of Go the programs are made.
func writeSBOM(o options, stdout io.Writer) error {
	found, err := find(o)
	if err != nil {
		return fmt.Errorf("find the release's programs: %w", err)
	}
	document := documentOf(found, o.version, o.created)
	file := filepath.Join(o.dir, "sandlane-"+o.version+".spdx.json")
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write the SBOM: %w", err)
	}
	if err := errors.Join(spdxjson.Write(document, f, spdxjson.Indent(" ")), f.Close()); err != nil {
		return fmt.Errorf("write the SBOM: %w", err)
	}
	fmt.Fprintln(stdout, file)
	return nil
}

func documentOf(found programs, version string, created time.Time) *v2_3.Document {
	const unknown = "NOASSERTION"
	name := "sandlane-" + version
	d := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		DocumentNamespace: "https://sandlane.dev/spdx/" + name,
		CreationInfo:      &v2_3.CreationInfo{Created: created.Format(time.RFC3339), Creators: []common.Creator{{CreatorType: "Tool", Creator: "sandlane-release"}}},
	}
	add := func(p *v2_3.Package) common.ElementID {
		p.PackageSPDXIdentifier = common.ElementID(fmt.Sprintf("Package-%d", len(d.Packages)+1))
		p.PackageDownloadLocation, p.PackageLicenseConcluded, p.PackageLicenseDeclared, p.PackageCopyrightText = unknown, unknown, unknown, unknown
		d.Packages = append(d.Packages, p)
		return p.PackageSPDXIdentifier
	}
	relate := func(a common.ElementID, how string, b common.ElementID) {
		d.Relationships = append(d.Relationships, &v2_3.Relationship{
			RefA: common.MakeDocElementID("", string(a)), Relationship: how, RefB: common.MakeDocElementID("", string(b)),
		})
	}
	modules := map[string]common.ElementID{}
	order := func(a, b *program) int { return cmp.Compare(a.name, b.name) }
	for _, p := range slices.SortedFunc(maps.Values(found), order) {
		described := &v2_3.Package{
			PackageName: p.name, PackageVersion: p.version, PrimaryPackagePurpose: "APPLICATION",
			PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: p.sum}},
		}
		if p.python != "" {
			described.PrimaryPackagePurpose = "LIBRARY"
			described.PackageExternalReferences = reference("pkg:pypi/" + strings.ToLower(strings.ReplaceAll(p.python, "_", "-")) + "@" + url.QueryEscape(p.version))
		}
		id := add(described)
		relate("DOCUMENT", common.TypeRelationshipDescribe, id)
		for _, module := range p.modules {
			if modules[module] == "" {
				at, its, _ := strings.Cut(module, "@")
				modules[module] = add(&v2_3.Package{
					PackageName: at, PackageVersion: its, PrimaryPackagePurpose: "LIBRARY",
					PackageExternalReferences: reference("pkg:golang/" + at + "@" + url.QueryEscape(its)),
				})
			}
			relate(id, common.TypeRelationshipDependsOn, modules[module])
		}
	}
	return d
}

// reference names a package by its URL: https://github.com/package-url/purl-spec.
func reference(purl string) []*v2_3.PackageExternalReference {
	return []*v2_3.PackageExternalReference{{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: purl}}
}
