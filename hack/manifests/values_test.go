package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func fromChart(t *testing.T, chart, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../charts", chart, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// schema is what the test asks of a JSON schema.
type schema struct {
	Ref        string             `json:"$ref"`
	Type       any                `json:"type"`
	Properties map[string]*schema `json:"properties"`
	Additional json.RawMessage    `json:"additionalProperties"`
	Defs       map[string]*schema `json:"definitions"`
}

// optional are properties that have no default.
var optional = []string{"resources.claims", "issuerRef.group"}

// Each value has a schema, each schema a value, and what is neither is refused.
func TestSchemaIsComplete(t *testing.T) {
	charts, err := filepath.Glob("../../charts/*")
	if err != nil || len(charts) == 0 {
		t.Fatalf("no charts: %v", err)
	}
	for _, dir := range charts {
		chart := filepath.Base(dir)
		t.Run(chart, func(t *testing.T) {
			var root schema
			var values map[string]any
			fromChart(t, chart, "values.schema.json", &root)
			fromChart(t, chart, "values.yaml", &values)
			compare(t, &root, &root, values, "")
		})
	}
}

func compare(t *testing.T, root, s *schema, values map[string]any, path string) {
	t.Helper()
	if string(s.Additional) != "false" && path != "global." { // other charts have values there
		t.Errorf("%q takes values that are none", path)
	}
	for name, value := range values {
		of := s.Properties[name]
		if of == nil {
			t.Errorf("%s has no schema", path+name)
			continue
		}
		if name, ok := strings.CutPrefix(of.Ref, "#/definitions/"); ok {
			of = root.Defs[name]
		}
		if section, ok := value.(map[string]any); ok && of != nil && len(of.Properties) > 0 {
			compare(t, root, of, section, path+name+".")
		}
	}
	for name := range s.Properties {
		full := path + name
		if _, ok := values[name]; !ok && !slices.ContainsFunc(optional, func(o string) bool { return strings.HasSuffix(full, o) }) {
			t.Errorf("%s has no default in values.yaml", full)
		}
	}
}

// Policies name ports by number: those of a gateway's Envoy are a sidecar's, and not
// every network plugin looks for a port's name among sidecars.
func TestPoliciesNamePortsByNumber(t *testing.T) {
	const file = "../../charts/sandlane/templates/network-policies.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ports := regexp.MustCompile(`{port: ([^}]+)}`).FindAllStringSubmatch(string(text), -1)
	for _, m := range ports {
		if strings.HasSuffix(strings.TrimSpace(m[1]), "| int") {
			continue // a number, whatever the value is
		}
		if _, err := strconv.Atoi(m[1]); err != nil {
			t.Errorf("%s has a port %q", file, m[1])
		}
	}
	if len(ports) < 5 {
		t.Errorf("%s has %d ports only: the pattern has rotted", file, len(ports))
	}
}

func TestValueRows(t *testing.T) {
	rows, err := valueRows([]byte("# Head.\n\n# Of a,\n# in two lines.\na: 1\nb:\n  # Of c.\n  c: [x, {y: 2}]\n  d: {}\n# A section.\ne:\n  f: \"\"\n"))
	want := []valueRow{{"a", "`1`", "Of a, in two lines."}, {"b.c", "`[x, {y: 2}]`", "Of c."}, {"b.d", "`{}`", ""}, {"e", "", "A section."}, {"e.f", "`\"\"`", ""}}
	if err != nil || !slices.Equal(rows, want) {
		t.Errorf("%q, %v; want %q", rows, err, want)
	}
}
