package helm

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// gainOptionalFields: the CRDs of this commit have every field that those of the previous release
// had, and require no other, so that an upgrade needs no conversion (docs/install.md).
func (u *upgrade) gainOptionalFields(t *testing.T) {
	before, now := u.definitionsOf(t, u.previous), u.definitionsOf(t, u.now)
	if len(before) == 0 {
		t.Fatal("the previous release has no CRDs")
	}
	for name, was := range before {
		for _, lost := range lostBetween(name, was, now[name]) {
			t.Error(lost)
		}
	}
}

// definitionsOf are the schemas of a release's CRDs, by the CRD's name and version.
func (u *upgrade) definitionsOf(t *testing.T, of release) map[string]apiextensionsv1.JSONSchemaProps {
	t.Helper()
	all := map[string]apiextensionsv1.JSONSchemaProps{}
	text := u.run(t, "helm", "template", "sandlane", of.chart(), "--show-only", filepath.Join("templates", "crds.yaml"))
	for _, object := range strings.Split(text, "\n---\n") {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal([]byte(object), &crd); err != nil {
			t.Fatal(err)
		}
		for _, version := range crd.Spec.Versions {
			if version.Served {
				all[crd.Name+" "+version.Name] = *version.Schema.OpenAPIV3Schema
			}
		}
	}
	return all
}

// lostBetween says what an older schema takes and a newer one does not: fields, types and values
// that are gone, and fields that are required now.
func lostBetween(at string, was, now apiextensionsv1.JSONSchemaProps) (lost []string) {
	if now.Type != was.Type {
		return []string{fmt.Sprintf("%s was of type %q, and is of type %q", at, was.Type, now.Type)}
	}
	for _, name := range now.Required {
		if !slices.Contains(was.Required, name) {
			lost = append(lost, fmt.Sprintf("%s.%s is required now", at, name))
		}
	}
	for _, value := range was.Enum {
		if len(now.Enum) > 0 && !slices.ContainsFunc(now.Enum, func(v apiextensionsv1.JSON) bool { return string(v.Raw) == string(value.Raw) }) {
			lost = append(lost, fmt.Sprintf("%s may not be %s any more", at, value.Raw))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was.Properties)) {
		field, there := now.Properties[name]
		if !there {
			lost = append(lost, fmt.Sprintf("%s.%s is gone", at, name))
			continue
		}
		lost = append(lost, lostBetween(at+"."+name, was.Properties[name], field)...)
	}
	if was.Items != nil && was.Items.Schema != nil && now.Items != nil && now.Items.Schema != nil {
		lost = append(lost, lostBetween(at+"[]", *was.Items.Schema, *now.Items.Schema)...)
	}
	if was.AdditionalProperties != nil && was.AdditionalProperties.Schema != nil && now.AdditionalProperties != nil && now.AdditionalProperties.Schema != nil {
		lost = append(lost, lostBetween(at+"{}", *was.AdditionalProperties.Schema, *now.AdditionalProperties.Schema)...)
	}
	return lost
}
