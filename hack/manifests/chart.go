package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

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
	policies, err := clusterPolicies.template()
	if err != nil {
		return err
	}
	tenants, err := tenantPolicies.template()
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"sandlane/templates/rights.yaml":               rights,
		"sandlane/templates/crds.yaml":                 definitions,
		"sandlane/templates/pool-policies.yaml":        policies,
		"sandlane-tenant/templates/pool-policies.yaml": tenants,
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

// rightsTemplate renders the rights twice, for all namespaces and for named ones.
// Objects that are the same in both come once; the others stand under a condition.
func rightsTemplate() ([]byte, error) {
	all := access.Options{SystemNamespace: systemMark, KeyNamespace: keyMark}
	named := all
	named.PoolNamespaces = []string{poolMark}
	anywhere, order, err := rendered(access.Objects(all), nil)
	if err != nil {
		return nil, err
	}
	chosen, order, err := rendered(access.Objects(named), order)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString(generated)
	for _, key := range order {
		one, other := anywhere[key], chosen[key]
		switch {
		case one == other:
			fmt.Fprintf(&out, "---\n%s", one)
		case other == "":
			fmt.Fprintf(&out, "{{- if not $.Values.poolNamespaces }}\n---\n%s{{- end }}\n", one)
		case one == "":
			each := strings.ReplaceAll(other, poolMark, "{{ . }}")
			fmt.Fprintf(&out, "{{- range $.Values.poolNamespaces }}\n---\n%s{{- end }}\n", each)
		default:
			// In a single-quoted scalar of YAML a quote is two.
			list := strings.ReplaceAll(other, "''"+poolMark+"''", `{{ include "sandlane.poolNamespaces" $ | replace "'" "''" }}`)
			list = strings.ReplaceAll(list, "'"+poolMark+"'", `{{ include "sandlane.poolNamespaces" $ }}`)
			fmt.Fprintf(&out, "---\n{{- if $.Values.poolNamespaces }}\n%s{{- else }}\n%s{{- end }}\n", list, one)
		}
	}
	text := strings.ReplaceAll(out.String(), systemMark, "{{ $.Release.Namespace }}")
	return []byte(strings.ReplaceAll(text, keyMark, "{{ $.Values.keyNamespace.name }}")), nil
}

// rendered returns objects as YAML by their identity, and the identities that are
// not in order yet appended to it.
func rendered(objects []client.Object, order []string) (map[string]string, []string, error) {
	out, known := map[string]string{}, map[string]bool{}
	for _, key := range order {
		known[key] = true
	}
	for _, obj := range objects {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, nil, fmt.Errorf("render %s: %w", obj.GetName(), err)
		}
		delete(fields, "status")
		text, err := yaml.Marshal(fields)
		if err != nil {
			return nil, nil, fmt.Errorf("render %s: %w", obj.GetName(), err)
		}
		key := obj.GetObjectKind().GroupVersionKind().Kind + "/" + obj.GetNamespace() + "/" + obj.GetName()
		if out[key] = string(text); !known[key] {
			order = append(order, key)
		}
	}
	return out, order, nil
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
		quoted := strings.TrimPrefix(strings.ReplaceAll(string(text), "{{", `{{ "{{" }}`), "---\n")
		before, after, found := strings.Cut(quoted, annotations)
		if !found {
			return nil, fmt.Errorf("%s has no annotations", file)
		}
		fmt.Fprintf(&out, "---\n%s%s    {{- if .Values.crds.keep }}\n    helm.sh/resource-policy: keep\n    {{- end }}\n%s", before, annotations, after)
	}
	out.WriteString("{{- end }}\n")
	return out.Bytes(), nil
}
