package names

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Template is a header's value with places for secrets. The zero value is empty.
type Template struct {
	parts []part
	tail  string
}

// part is a secret, and the text between it and the one before.
type part struct{ text, secret string }

const (
	placeholder = "${e2b."
	ofSecrets   = "secrets."
)

// ParseTemplate reads a value in which ${e2b.secrets.NAME} stands for a secret. Any other
// placeholder of E2B's is an error, which says nothing of the value.
func ParseTemplate(value string) (Template, error) {
	if !httpguts.ValidHeaderFieldValue(value) {
		return Template{}, errors.New("a value is one line without control characters")
	}
	var t Template
	for {
		text, rest, found := strings.Cut(value, placeholder)
		if !found {
			t.tail = text
			return t, nil
		}
		inner, after, closed := strings.Cut(rest, "}")
		name, ofSecret := strings.CutPrefix(inner, ofSecrets)
		if !closed || !ofSecret {
			return Template{}, errors.New("a placeholder is written ${e2b.secrets.NAME}")
		}
		name, err := SecretName(name)
		if err != nil {
			return Template{}, err
		}
		t.parts, value = append(t.parts, part{text, name}), after
	}
}

// schemes are words before a placeholder that are no part of a secret.
var schemes = []string{"Bearer ", "Basic ", "Token ", "Bot ", "ApiKey "}

// Shown returns a value as it may be shown: placeholders as they are written, *** for
// anything else, but for a scheme such as Bearer before a placeholder.
func Shown(value string) string {
	var shown strings.Builder
	for {
		text, rest, found := strings.Cut(value, placeholder)
		switch {
		case text == "":
		case found && slices.ContainsFunc(schemes, func(s string) bool { return strings.EqualFold(s, text) }):
			shown.WriteString(text)
		default:
			shown.WriteString("***")
		}
		if !found {
			return shown.String()
		}
		inner, after, _ := strings.Cut(rest, "}")
		shown.WriteString(placeholder + inner + "}")
		value = after
	}
}

// SecretName returns a secret's name as it is kept, in lower case.
func SecretName(text string) (string, error) {
	name := strings.ToLower(text)
	ok := name != "" && len(name) <= 128 && !strings.HasPrefix(name, "sec_")
	for i := range len(name) {
		c := name[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if !ok {
		return "", errors.New("a secret's name has 1 to 128 letters, digits, hyphens and underscores, and does not begin with sec_")
	}
	return name, nil
}

// Secrets returns the names of the secrets, in their order; one may come twice.
func (t Template) Secrets() []string {
	names := make([]string, len(t.parts))
	for i, p := range t.parts {
		names[i] = p.secret
	}
	return names
}

// Fill returns the value with its secrets, which reveal opens. It fails if one cannot be
// opened, or would make the value another header's; the error says nothing of its content.
func (t Template) Fill(reveal func(name string) (string, error)) (string, error) {
	var value strings.Builder
	for _, p := range t.parts {
		secret, err := reveal(p.secret)
		if err != nil {
			return "", fmt.Errorf("secret %s: %w", p.secret, err)
		}
		if !httpguts.ValidHeaderFieldValue(secret) {
			return "", fmt.Errorf("secret %s: it has characters that no header may have", p.secret)
		}
		value.WriteString(p.text)
		value.WriteString(secret)
	}
	value.WriteString(t.tail)
	return value.String(), nil
}
