package access

import (
	"bytes"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// YAML returns the objects of Objects as one file for `kubectl apply`.
func YAML(o Options) ([]byte, error) {
	var out bytes.Buffer
	for i, obj := range Objects(o) {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", obj.GetName(), err)
		}
		delete(fields, "status")
		text, err := yaml.Marshal(fields)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", obj.GetName(), err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// Markdown returns the rights of all processes as a table for people.
func Markdown() string {
	var out strings.Builder
	out.WriteString("| process | where | what | verbs | for |\n|---|---|---|---|---|\n")
	for _, p := range Processes() {
		for _, r := range Rights(p) {
			what := r.Resource
			if r.Group != "" {
				what += "." + r.Group
			}
			if len(r.Names) > 0 {
				what += " " + strings.Join(r.Names, ", ")
			}
			needed := r.For
			if r.When != "" {
				needed += ", " + r.When
			}
			fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", p, r.Scope, what, strings.Join(r.Verbs, ", "), needed)
		}
	}
	return out.String()
}
