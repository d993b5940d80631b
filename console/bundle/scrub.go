package bundle

import (
	"regexp"
	"strings"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

const leftOut = "(left out)"

// secretFields are left out wherever they stand in an object.
var secretFields = map[string]bool{
	"command": true, "args": true, "postStartHooks": true, "httpHeaders": true, "volumeAttributes": true, "options": true, "token": true,
	"startCommand": true, "readyCommand": true, "log": true, // of a TemplateBuild
}

// scrub returns an object's JSON without what may be a secret of a user.
func scrub(v any) any {
	switch v := v.(type) {
	case map[string]any:
		clean := make(map[string]any, len(v))
		for key, value := range v {
			if key != "managedFields" {
				clean[key] = field(key, value)
			}
		}
		return clean
	case []any:
		clean := make([]any, len(v))
		for i := range v {
			clean[i] = scrub(v[i])
		}
		return clean
	case string:
		return redact(v)
	}
	return v
}

func field(key string, value any) any {
	switch m, isMap := value.(map[string]any); {
	case secretFields[key]:
		return leftOut
	case key == "env":
		return variables(value)
	case key == "annotations" && isMap:
		return ours(m)
	case key == "spec" && isMap:
		// A Sandbox's spec.metadata is its user's; no other spec has one.
		clean, _ := scrub(m).(map[string]any)
		if users, found := m["metadata"].(map[string]any); found {
			clean["metadata"] = names(users)
		}
		return clean
	}
	return scrub(value)
}

// variables keeps the names of environment variables, and where their values come from. The
// env of a Sandbox is a name.
func variables(value any) any {
	list, isList := value.([]any)
	if !isList {
		return scrub(value)
	}
	clean := make([]any, len(list))
	for i := range list {
		clean[i] = leftOut
		if m, isMap := list[i].(map[string]any); isMap {
			v := map[string]any{"name": m["name"]}
			if m["valueFrom"] != nil {
				v["valueFrom"] = m["valueFrom"]
			} else {
				v["value"] = leftOut
			}
			clean[i] = v
		}
	}
	return clean
}

// ours keeps annotations of this project, but for hooks, which are commands.
func ours(m map[string]any) any {
	clean := names(m)
	for key, value := range m {
		if strings.HasPrefix(key, "sandlane.dev/") && key != v1alpha1.AnnotationPostStartHooks {
			clean[key] = scrub(value)
		}
	}
	return clean
}

func names(m map[string]any) map[string]any {
	clean := make(map[string]any, len(m))
	for key := range m {
		clean[key] = leftOut
	}
	return clean
}

// The forms of secrets in text.
var secretForms = []*regexp.Regexp{
	regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`),
	regexp.MustCompile(`e2b_[0-9A-Za-z]+`),
	regexp.MustCompile(`eyJ[0-9A-Za-z_-]+\.[0-9A-Za-z_-]+\.[0-9A-Za-z_-]*`),
	regexp.MustCompile(`(?i)\b(bearer|basic)\s+[0-9A-Za-z+/=._~-]{8,}`),
	regexp.MustCompile(`(?i)(password|passwd|secret|token|api[-_]?key|authorization|credential)s?["']?\s*[=:]\s*("[^"]*"|'[^']*'|[^\s"',;}]+)`),
}

// redact replaces what looks like a secret.
func redact(text string) string {
	for _, form := range secretForms {
		text = form.ReplaceAllString(text, leftOut)
	}
	return text
}
