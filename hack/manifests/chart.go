package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandlane/sandlane/access"
)

const (
	charts    = "charts"
	generated = "{{- /* Written by `make generate`; do not edit. */ -}}\n"

	// Names that stand for what the chart's user chooses.
	systemMark, keyMark, poolMark = "x-system-namespace-x", "x-key-namespace-x", "x-pool-namespace-x"
)

// writeCharts writes the charts' templates that are made from code: the rights of
// package access, the policies of package egress, and the CRDs; and their pages.
func writeCharts() error {
	rights, err := rightsTemplate()
	if err != nil {
		return err
	}
	definitions, err := definitionsTemplate()
	if err != nil {
		return err
	}
	bindings, err := bindingsTemplate()
	if err != nil {
		return err
	}
	policies, err := policiesTemplate()
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"sandlane/templates/rights.yaml":               rights,
		"sandlane/templates/crds.yaml":                 definitions,
		"sandlane-tenant/templates/rights.yaml":        bindings,
		"sandlane-tenant/templates/pool-policies.yaml": policies,
	}
	for chart, head := range readmeHeads {
		if files[chart+"/README.md"], err = readme(chart, head); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(charts, name), text, 0o644); err != nil { //nolint:gosec // part of the chart
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// rightsTemplate renders the rights for the namespaces that the chart's user chooses.
func rightsTemplate() ([]byte, error) {
	text, err := access.YAML(access.Objects(access.Options{SystemNamespace: systemMark, KeyNamespace: keyMark}))
	if err != nil {
		return nil, err
	}
	out := strings.ReplaceAll(generated+"---\n"+labelled(string(text)), systemMark, "{{ $.Release.Namespace }}")
	return []byte(strings.ReplaceAll(out, keyMark, "{{ $.Values.keyNamespace.name }}")), nil
}

// labelled gives each object the labels of the chart's objects.
func labelled(objects string) string {
	const metadata = "\nmetadata:\n"
	return strings.ReplaceAll(objects, metadata, metadata+"  labels: {{ include \"sandlane.labels\" $ | nindent 4 }}\n")
}

// bindingsTemplate renders what a team's namespace binds.
func bindingsTemplate() ([]byte, error) {
	text, err := access.YAML(access.Bindings(access.Options{SystemNamespace: systemMark, KeyNamespace: keyMark}, poolMark))
	if err != nil {
		return nil, err
	}
	out := strings.ReplaceAll(generated+"---\n"+string(text), systemMark, "{{ $.Values.systemNamespace }}")
	return []byte(strings.ReplaceAll(out, poolMark, "{{ $.Release.Namespace }}")), nil
}

// definitionsTemplate puts the CRDs under the chart's conditions. What a template
// would take for its own is quoted.
func definitionsTemplate() ([]byte, error) {
	files, err := filepath.Glob("api/crds/*.yaml")
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("find the CRDs: %d files, %w", len(files), err)
	}
	var out bytes.Buffer
	out.WriteString(generated + "{{- if .Values.crds.install }}\n")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the CRDs: %w", err)
		}
		const annotations = "  annotations:\n"
		quoted := labelled(strings.TrimPrefix(strings.ReplaceAll(string(text), "{{", `{{ "{{" }}`), "---\n"))
		before, after, found := strings.Cut(quoted, annotations)
		if !found {
			return nil, fmt.Errorf("%s has no annotations", file)
		}
		fmt.Fprintf(&out, "---\n%s%s    {{- if .Values.crds.keep }}\n    helm.sh/resource-policy: keep\n    {{- end }}\n%s", before, annotations, after)
	}
	out.WriteString("{{- end }}\n")
	return out.Bytes(), nil
}
