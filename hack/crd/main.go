// Command crd finishes the CRDs that controller-gen wrote: it bounds the lists
// of a pod template that CEL rules walk (without bounds the API server refuses
// the rules for their possible cost), and drops the descriptions of fields that
// are Kubernetes' own, which make up two thirds of each file.
//
// `make generate` calls it, with the files to edit; no other program does.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// Bounds on the lists of a pod template. They are far above what a pod can
// sensibly hold and small enough for the API server's estimate of a rule's cost.
const (
	maxContainers = 64
	maxPorts      = 128
)

func main() {
	for _, path := range os.Args[1:] {
		if err := finish(path); err != nil {
			fmt.Fprintf(os.Stderr, "crd: %v\n", err)
			os.Exit(1)
		}
	}
}

func finish(path string) error {
	in, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading CRD: %w", err)
	}
	var crd map[string]any
	if err := yaml.Unmarshal(in, &crd); err != nil {
		return fmt.Errorf("parsing %s: %w", path, err)
	}
	finishSchema(crd)
	out, err := yaml.Marshal(crd)
	if err != nil {
		return fmt.Errorf("printing %s: %w", path, err)
	}
	return os.WriteFile(path, append([]byte("---\n"), out...), 0o644)
}

// finishSchema looks for pod templates in node and whatever is below it.
func finishSchema(node any) {
	switch node := node.(type) {
	case map[string]any:
		if spec := podSpec(node); spec != nil {
			dropDescriptions(node["properties"])
			boundLists(spec)
			return
		}
		for _, child := range node {
			finishSchema(child)
		}
	case []any:
		for _, child := range node {
			finishSchema(child)
		}
	}
}

// podSpec returns the properties of a pod template's spec; nil if schema is not
// that of a pod template.
func podSpec(schema map[string]any) map[string]any {
	spec := properties(properties(schema)["spec"])
	if spec["containers"] == nil || spec["hostNetwork"] == nil {
		return nil
	}
	return spec
}

func properties(schema any) map[string]any {
	m, _ := schema.(map[string]any)
	p, _ := m["properties"].(map[string]any)
	return p
}

func boundLists(spec map[string]any) {
	for _, name := range []string{"containers", "initContainers"} {
		list := spec[name].(map[string]any)
		list["maxItems"] = maxContainers
		properties(list["items"])["ports"].(map[string]any)["maxItems"] = maxPorts
	}
}

// dropDescriptions removes every description below node. Descriptions are
// strings; a property that is named "description" is an object and stays.
func dropDescriptions(node any) {
	switch node := node.(type) {
	case map[string]any:
		if _, text := node["description"].(string); text {
			delete(node, "description")
		}
		for _, child := range node {
			dropDescriptions(child)
		}
	case []any:
		for _, child := range node {
			dropDescriptions(child)
		}
	}
}
