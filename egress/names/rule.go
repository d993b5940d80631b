package names

import (
	"errors"
	"fmt"
	"net/http"

	"golang.org/x/net/http/httpguts"
)

// reserved are the headers that say where a request ends, which host it is for or what
// happens with its connection: a rule that set one would undo what was judged.
var reserved = map[string]bool{
	"Connection": true, "Content-Length": true, "Expect": true, "Host": true, "Http2-Settings": true, "Keep-Alive": true,
	"Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true,
}

func newRule(host string, headers map[string]string) (*Rule, error) {
	name, err := pattern(host)
	switch {
	case err != nil:
		return nil, err
	case name == "*":
		return nil, errors.New("a rule must name a host, or a wildcard such as *.example.com")
	case len(host) > maxRuleHost:
		return nil, fmt.Errorf("a host has at most %d bytes", maxRuleHost)
	case len(headers) > maxHeaders:
		return nil, fmt.Errorf("%d headers: at most %d", len(headers), maxHeaders)
	}
	rule, secrets := &Rule{Pattern: name, Headers: make(map[string]Template, len(headers))}, map[string]struct{}{}
	for header, value := range headers {
		key := http.CanonicalHeaderKey(header)
		switch {
		case len(header) > maxHeaderName || !httpguts.ValidHeaderFieldName(header):
			return nil, fmt.Errorf("header %q: a name has at most %d letters, digits and hyphens", header, maxHeaderName)
		case reserved[key]:
			return nil, fmt.Errorf("header %s cannot be set", key)
		case len(value) > maxHeaderValue:
			return nil, fmt.Errorf("header %s: a value has at most %d bytes", key, maxHeaderValue)
		}
		if _, twice := rule.Headers[key]; twice {
			return nil, fmt.Errorf("header %s is set twice", key)
		}
		template, err := ParseTemplate(value)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", key, err)
		}
		for _, secret := range template.Secrets() {
			secrets[secret] = struct{}{}
		}
		rule.Headers[key] = template
	}
	if len(secrets) > maxSecrets {
		return nil, fmt.Errorf("%d secrets: at most %d", len(secrets), maxSecrets)
	}
	return rule, nil
}
