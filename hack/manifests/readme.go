package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readmeHeads is what the page of each chart begins with.
var readmeHeads = map[string]string{
	"sandlane": `# The chart sandlane

Installs Sandlane's gateways and controllers, their CRDs, rights and certificates.
` + "`docs/install.md`" + ` says how it is used, upgraded and uninstalled, ` + "`docs/operations.md`" + ` what it takes to run it.
There is one release in a cluster.
`,
	"sandlane-tenant": `# The chart sandlane-tenant

What one team has on a cluster with the chart sandlane: pools, API keys, quotas and network policies of the release's namespace.
` + "`docs/install.md`" + ` has an example.
`,
}

const readmeTable = `
This page is made from ` + "`values.yaml`" + ` by ` + "`make generate`" + `.

| value | default | what it is |
|---|---|---|
`

// readme renders a chart's values with their comments as a page.
func readme(chart, head string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(charts, chart, "values.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the chart's values: %w", err)
	}
	rows, err := valueRows(text)
	if err != nil {
		return nil, fmt.Errorf("values of the chart %s: %w", chart, err)
	}
	var out bytes.Buffer
	out.WriteString(head + readmeTable)
	for _, r := range rows {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", r.path, r.value, r.comment)
	}
	return out.Bytes(), nil
}

// valueRow is a value, or a section, which has no value of its own.
type valueRow struct{ path, value, comment string }

// valueRows reads the values in their order, with the comments above them.
func valueRows(text []byte) ([]valueRow, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) != 1 {
		return nil, errors.New("there are none")
	}
	return appendRows(nil, "", doc.Content[0])
}

func appendRows(rows []valueRow, prefix string, mapping *yaml.Node) ([]valueRow, error) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		row := valueRow{path: prefix + key.Value, comment: comment(key.HeadComment)}
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Style&yaml.FlowStyle == 0 {
			if row.comment != "" {
				rows = append(rows, row)
			}
			var err error
			if rows, err = appendRows(rows, row.path+".", value); err != nil {
				return nil, err
			}
			continue
		}
		value.HeadComment, value.LineComment, value.FootComment = "", "", ""
		value.Style |= yaml.FlowStyle
		shown, err := yaml.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("show %s: %w", row.path, err)
		}
		row.value = "`" + strings.ReplaceAll(strings.Join(strings.Fields(string(shown)), " "), "|", `\|`) + "`"
		rows = append(rows, row)
	}
	return rows, nil
}

// comment is a comment as one line; of several paragraphs the last one, which stands
// at its key.
func comment(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	lines := strings.Split(paragraphs[len(paragraphs)-1], "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(strings.TrimPrefix(line, "#"))
	}
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(strings.Join(lines, " "))
}
