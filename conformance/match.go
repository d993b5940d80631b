package conformance

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// differs says how got is not what is wanted, and nothing if it is. Of an object only the
// wanted fields are looked at. A wanted string in slashes is a pattern; <any>, <absent>,
// <string>, <number>, <bool>, <list> and <object> stand for kinds, <empty> for a field that is
// absent, null or a list without elements. A wanted list that begins with <contains> asks for
// an element for each of its others.
func differs(got, want any) string {
	switch w := want.(type) {
	case string:
		return differsFromText(got, w)
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s instead of an object", shown(got))
		}
		for name, value := range w {
			field, there := g[name]
			if value == "<absent>" {
				if there {
					return fmt.Sprintf("there is %s: %s", name, shown(field))
				}
				continue
			}
			if list, ok := field.([]any); value == "<empty>" && (field == nil || ok && len(list) == 0) {
				continue
			}
			if !there {
				return "no " + name + " in " + shown(got)
			}
			if d := differs(field, value); d != "" {
				return name + ": " + d
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok {
			return fmt.Sprintf("%s instead of a list", shown(got))
		}
		if len(w) > 0 && w[0] == "<contains>" {
			return lacks(g, w[1:])
		}
		if len(g) != len(w) {
			return fmt.Sprintf("%d elements instead of %d: %s", len(g), len(w), shown(got))
		}
		for i := range w {
			if d := differs(g[i], w[i]); d != "" {
				return fmt.Sprintf("element %d: %s", i, d)
			}
		}
		return ""
	}
	if !reflect.DeepEqual(got, want) {
		return shown(got) + " instead of " + shown(want)
	}
	return ""
}

func differsFromText(got any, want string) string {
	ok := false
	switch {
	case want == "<any>":
		ok = true
	case want == "<string>":
		var s string
		s, ok = got.(string)
		ok = ok && s != ""
	case want == "<number>":
		_, ok = got.(float64)
	case want == "<bool>":
		_, ok = got.(bool)
	case want == "<list>":
		_, ok = got.([]any)
	case want == "<object>":
		_, ok = got.(map[string]any)
	case len(want) > 2 && strings.HasPrefix(want, "/") && strings.HasSuffix(want, "/"):
		// Connect sends integers of 64 bits as strings, and other numbers as such.
		pattern, err := regexp.Compile(want[1 : len(want)-1])
		ok = err == nil && pattern.MatchString(fmt.Sprint(got))
	default:
		ok = got == want
	}
	if ok {
		return ""
	}
	return shown(got) + " instead of " + want
}

// lacks says which of the wanted elements no element is.
func lacks(got, want []any) string {
	for _, w := range want {
		found := false
		for _, g := range got {
			found = found || differs(g, w) == ""
		}
		if !found {
			return "no element is " + shown(w) + ": " + shown(got)
		}
	}
	return ""
}

// misses says which wanted message does not come after the one before it.
func misses(got, want []any) string {
	for _, w := range want {
		at := 0
		for at < len(got) && differs(got[at], w) != "" {
			at++
		}
		if at == len(got) {
			return "no message is, in its place, " + shown(w)
		}
		got = got[at+1:]
	}
	return ""
}

// shown is a value as it stands in a report: one line, not long.
func shown(v any) string {
	text, ok := v.(string)
	if !ok {
		b, err := json.Marshal(v)
		if err != nil {
			return err.Error()
		}
		text = string(b)
	}
	const most = 300
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.Join(strings.Fields(text), " ")
}

// at follows a path with dots; a number is a place in a list.
func at(v any, dotted string) (any, bool) {
	for name := range strings.SplitSeq(dotted, ".") {
		switch parent := v.(type) {
		case map[string]any:
			child, ok := parent[name]
			if !ok {
				return nil, false
			}
			v = child
		case []any:
			var i int
			if _, err := fmt.Sscan(name, &i); err != nil || i < 0 || i >= len(parent) {
				return nil, false
			}
			v = parent[i]
		default:
			return nil, false
		}
	}
	return v, true
}

var variable = regexp.MustCompile(`\{([A-Za-z]+)\}`)

// filled puts variables in the place of their names. A string that is a name alone becomes
// the variable's value with its type.
func filled(v any, vars map[string]any) any {
	switch t := v.(type) {
	case string:
		if m := variable.FindStringSubmatch(t); len(m) == 2 && m[0] == t {
			if value, ok := vars[m[1]]; ok {
				return value
			}
		}
		return variable.ReplaceAllStringFunc(t, func(name string) string {
			if value, ok := vars[name[1:len(name)-1]]; ok {
				return fmt.Sprint(value)
			}
			return name
		})
	case map[string]any:
		m := make(map[string]any, len(t))
		for name, value := range t {
			m[name] = filled(value, vars)
		}
		return m
	case []any:
		l := make([]any, len(t))
		for i := range t {
			l[i] = filled(t[i], vars)
		}
		return l
	}
	return v
}
