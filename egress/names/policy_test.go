package names

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func blocks(list ...string) (read []netip.Prefix) {
	for _, text := range list {
		read = append(read, netip.MustParsePrefix(text))
	}
	return read
}

func policy(t *testing.T, r Rules) *Policy {
	t.Helper()
	p, err := NewPolicy(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The exact name comes before the longest wildcard, rules are not merged, and a rule opens
// nothing.
func TestDecide(t *testing.T) {
	p := policy(t, Rules{
		DenyAll: true, AllowNames: []string{"Example.com", "*.files.example.com"},
		Headers: map[string]map[string]string{
			"example.com": {"X-A": "1"}, "*.example.com": {"X-A": "2", "X-B": "2"}, "*.a.files.example.com": {"X-A": "3"},
			"elsewhere.com": {"X-A": "4"},
		},
	})
	for host, want := range map[string]string{
		"example.com": "example.com", "b.files.example.com": "*.example.com", "b.a.files.example.com": "*.a.files.example.com",
		"c.b.a.files.example.com": "*.a.files.example.com",
		"files.example.com":       "denied", "www.example.com": "denied", "elsewhere.com": "denied", "com": "denied", "notexample.com": "denied",
	} {
		d, got := p.Decide(host), "denied"
		if d.Rule != nil {
			got = d.Rule.Pattern
		}
		if got != want || d.Allowed != (want != "denied") {
			t.Errorf("%s: %+v, want %s", host, d, want)
		}
	}
	open := policy(t, Rules{Headers: map[string]map[string]string{"example.com": {"X-A": "1"}}})
	if d := open.Decide("other.com"); !d.Allowed || d.Rule != nil {
		t.Errorf("a host without a rule where nothing is denied: %+v", d)
	}
	if d := (&Policy{}).Decide("other.com"); !d.Allowed || d.Rule != nil {
		t.Errorf("the zero policy: %+v", d)
	}
}

func TestDialled(t *testing.T) {
	all := policy(t, Rules{DenyAll: true, AllowNames: []string{"example.com"}, DenyBlocks: blocks("0.0.0.0/0"), AllowBlocks: blocks("192.0.2.0/24")})
	some := policy(t, Rules{DenyBlocks: blocks("198.51.100.0/24"), AllowBlocks: blocks("198.51.100.7/32")})
	for _, c := range []struct {
		p          *Policy
		host, addr string
		want       bool
	}{
		{all, "example.com", "198.51.100.1", true}, // allow wins over deny
		{all, "other.com", "192.0.2.1", false},     // blocks are for direct connections there
		{some, "other.com", "203.0.113.1", true},
		{some, "other.com", "198.51.100.1", false},
		{some, "other.com", "198.51.100.7", true},
	} {
		if got := c.p.Dialled(c.host, netip.MustParseAddr(c.addr)); got != c.want {
			t.Errorf("%s at %s: %v, want %v", c.host, c.addr, got, c.want)
		}
	}
}

func TestPolicyRefuses(t *testing.T) {
	headers := func(host string, list ...string) Rules {
		h := map[string]string{}
		for i := 0; i < len(list); i += 2 {
			h[list[i]] = list[i+1]
		}
		return Rules{Headers: map[string]map[string]string{host: h}}
	}
	many := Rules{Headers: map[string]map[string]string{}}
	for i := range maxRules + 1 {
		many.Headers[fmt.Sprintf("h%d.com", i)] = nil
	}
	long := headers("a.com")
	for i := range maxHeaders + 1 {
		long.Headers["a.com"][fmt.Sprintf("x-%d", i)] = "v"
	}
	var secrets strings.Builder
	for i := range maxSecrets + 1 {
		fmt.Fprintf(&secrets, "${e2b.secrets.s%d}", i)
	}
	for want, r := range map[string]Rules{
		"deny 0.0.0.0/0 too":         {AllowNames: []string{"a.com"}},
		"neither a host's name":      {AllowNames: []string{"a.*.com"}, DenyAll: true},
		"at most 10":                 many,
		"must name a host":           headers("*"),
		"at most 128 bytes":          headers(strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".example"),
		"at most 20":                 long,
		"header \"a b\"":             headers("a.com", "a b", "v"),
		"header \"a:\"":              headers("a.com", "a:", "v"),
		"Transfer-Encoding cannot":   headers("a.com", "transfer-encoding", "v"),
		"Host cannot":                headers("a.com", "HOST", "v"),
		"Authorization is set twice": headers("a.com", "authorization", "v", "Authorization", "v"),
		"at most 2048 bytes":         headers("a.com", "x", strings.Repeat("v", 2049)),
		"without control characters": headers("a.com", "x", "v\r\nx-b: c"),
		"${e2b.secrets.NAME}":        headers("a.com", "x", "${e2b.identity.tokens.t}"),
		"1 to 128 letters":           headers("a.com", "x", "${e2b.secrets.a b}"),
		"33 secrets":                 headers("a.com", "x", secrets.String()),
		"another one for this host":  {Headers: map[string]map[string]string{"a.com": nil, "A.com": nil}},
	} {
		p, err := NewPolicy(r)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", want, p, err)
		}
		if err != nil && strings.Contains(err.Error(), "vvv") {
			t.Errorf("%v shows a value", err)
		}
	}
}

func TestTemplate(t *testing.T) {
	values := map[string]string{"key": "K-1", "second_2": "K-2", "broken": "a\r\nx-b: c"}
	reveal := func(name string) (string, error) {
		if v, found := values[name]; found {
			return v, nil
		}
		return "", errors.New("there is none")
	}
	for text, want := range map[string]string{
		"": "", "plain": "plain", "Bearer ${e2b.secrets.KEY}": "Bearer K-1",
		"${e2b.secrets.key}:${e2b.secrets.second_2}!": "K-1:K-2!", "${other} $": "${other} $",
	} {
		template, err := ParseTemplate(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := template.Fill(reveal); err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"${e2b.secrets.unknown}": "secret unknown: there is none", "x ${e2b.secrets.broken}": "secret broken: it has characters that no header may have",
	} {
		template, err := ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := template.Fill(reveal); err == nil || err.Error() != want || got != "" {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"${e2b.secrets.}", "${e2b.secrets.a", "${e2b.}", "${e2b.other.a}", "${e2b.secrets.sec_1}", "${e2b.secrets.${e2b.secrets.a}}", "a\nb"} {
		if template, err := ParseTemplate(text); err == nil {
			t.Errorf("%s is taken: %+v", text, template)
		}
	}
}

// What is shown of a value has its placeholders, and nothing of what may be secret.
func TestShown(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "hunter2": "***", "Bearer hunter2": "***", "Bearer ${e2b.secrets.KEY}": "Bearer ${e2b.secrets.KEY}",
		"basic ${e2b.secrets.A}:${e2b.secrets.b}": "basic ${e2b.secrets.A}***${e2b.secrets.b}", "hunter2 ${e2b.secrets.A}": "***${e2b.secrets.A}",
		"${e2b.secrets.A}hunter2": "${e2b.secrets.A}***", "Bearer ": "***",
	} {
		if got := Shown(value); got != want {
			t.Errorf("%s is shown as %q, want %q", value, got, want)
		}
	}
}
