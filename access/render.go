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

// Markdown returns the rights of each process as a table for people. Resources with the
// same verbs for the same purpose share a line.
func Markdown() string {
	var out strings.Builder
	for i, p := range Processes() {
		if i > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "| %s: where | what | verbs | for |\n|---|---|---|---|\n", p)
		type line struct{ where, verbs, purpose string }
		var lines []line
		what := map[line][]string{}
		for _, r := range Rights(p) {
			name := r.Resource
			if r.Group != "" {
				name += "." + r.Group
			}
			if len(r.Names) > 0 {
				name += " " + strings.Join(r.Names, ", ")
			}
			l := line{string(r.Scope), strings.Join(r.Verbs, ", "), r.For}
			if r.When != "" {
				l.purpose += ", " + r.When
			}
			if what[l] == nil {
				lines = append(lines, l)
			}
			what[l] = append(what[l], name)
		}
		for _, l := range lines {
			fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", l.where, strings.Join(what[l], ", "), l.verbs, l.purpose)
		}
	}
	return out.String()
}
