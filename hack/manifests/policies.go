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

// policiesTemplate renders the policies of package egress for the namespace of a team's
// release.
func policiesTemplate() ([]byte, error) {
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
`, "$.Values.networkPolicies.closedRanges", not), 1)
	}
	text = strings.ReplaceAll(text, poolMark, "{{ $.Release.Namespace }}")
	text = strings.ReplaceAll(text, systemMark, "{{ $.Values.systemNamespace }}")
	return []byte(generated + "{{- if $.Values.networkPolicies.enabled }}\n---\n" + text + "{{- end }}\n"), nil
}
