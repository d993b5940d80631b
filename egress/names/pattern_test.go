package names

import (
	"strings"
	"testing"
)

func TestHost(t *testing.T) {
	for text, want := range map[string]string{
		"API.Example.com": "api.example.com", "api.example.com.": "api.example.com", "localhost": "localhost",
		"_acme.example.com": "_acme.example.com", "xn--bcher-kva.example": "xn--bcher-kva.example", "a.0x1g": "a.0x1g",
	} {
		if got, err := Host(text); err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", ".", "a..b", "-a.b", "a-.b", "a b", "bücher.example", "a.example.com..", "*.example.com", "a\x00b", "a/b", "a:443", "a%2eb",
		"10.0.0.1", "10.0.0.1.", "167772161", "0x7f.1", "10.1", "[::1]", "::1", "127.0.0.0x1", strings.Repeat("a", 64), strings.Repeat("a.", 127) + "aa",
	} {
		if got, err := Host(text); err == nil {
			t.Errorf("%q is taken for %q", text, got)
		}
	}
}

// What a policy allows is what its one pattern means, said in another way.
func FuzzDecide(f *testing.F) {
	for _, seed := range [][2]string{
		{"example.com", "example.com"}, {"*.example.com", "a.b.example.com"}, {"*.example.com", "example.com"}, {"*", "x"},
		{"*.example.com", "evilexample.com"}, {"*.com", "10.0.0.1"}, {"example.com", "example.com."}, {"*.*.com", "a.b.com"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		host, err := Host(text)
		if err != nil {
			return
		}
		if again, err := Host(host); err != nil || again != host {
			t.Fatalf("%q is read as %q, and that as %q, %v", text, host, again, err)
		}
		policy, err := NewPolicy(Rules{AllowNames: []string{pattern}, DenyAll: true})
		if err != nil {
			return
		}
		above, wild := strings.CutPrefix(strings.ToLower(strings.TrimSuffix(pattern, ".")), "*.")
		want := pattern == "*" || !wild && host == above || wild && strings.HasSuffix(host, "."+above)
		if got := policy.Decide(host).Allowed; got != want {
			t.Fatalf("%q allows %q: %v, want %v", pattern, host, got, want)
		}
	})
}
