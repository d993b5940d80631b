package main

import (
	"fmt"
	"strings"

	"github.com/sandlane/sandlane/egress"
)

// Ranges that stand for those that the chart's user closes; they are for
// documentation, so nothing has them.
const (
	rangeMark4 = "203.0.113.7/32"
	rangeMark6 = "2001:db8::7/128"
)

// policyPlaces are a chart's names for what the policies differ in.
type policyPlaces struct{ before, namespace, system, ranges, after string }

var (
	// clusterPolicies are once for each namespace with pools.
	clusterPolicies = policyPlaces{
		before:    "{{- if $.Values.networkPolicies.enabled }}\n{{- range $namespace := $.Values.poolNamespaces }}\n---\n",
		namespace: "{{ $namespace }}", system: "{{ $.Release.Namespace }}", ranges: "$.Values.closedRanges",
		after: "{{- end }}\n{{- end }}\n",
	}
	// tenantPolicies are those of the release's namespace.
	tenantPolicies = policyPlaces{
		before:    "{{- if $.Values.networkPolicies.enabled }}\n---\n",
		namespace: "{{ $.Release.Namespace }}", system: "{{ $.Values.systemNamespace }}", ranges: "$.Values.networkPolicies.closedRanges",
		after: "{{- end }}\n",
	}
)

// template renders the policies of package egress for a chart.
func (p policyPlaces) template() ([]byte, error) {
	closed, err := egress.ClosedRanges([]string{rangeMark4, rangeMark6})
	if err != nil {
		return nil, err
	}
	policies, err := egress.YAML(poolMark, systemMark, closed)
	if err != nil {
		return nil, err
	}
	text := string(policies)
	for mark, not := range map[string]string{rangeMark4: "not ", rangeMark6: ""} {
		line := "        - " + mark + "\n"
		if strings.Count(text, line) != 1 {
			return nil, fmt.Errorf("the policies have %d lines for the range %s, want one", strings.Count(text, line), mark)
		}
		text = strings.Replace(text, line, fmt.Sprintf(`        {{- range %s }}
        {{- if %s(contains ":" .) }}
        - {{ . }}
        {{- end }}
        {{- end }}
`, p.ranges, not), 1)
	}
	text = strings.ReplaceAll(text, poolMark, p.namespace)
	text = strings.ReplaceAll(text, systemMark, p.system)
	return []byte(generated + p.before + text + p.after), nil
}
