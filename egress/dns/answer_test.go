package dns

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

var self = netip.MustParseAddr("192.0.2.1")

// allowed knows one name.
func allowed(name string, _ bool) Verdict {
	if name != "api.example.com" {
		return Verdict{Code: dnsmessage.RCodeNameError}
	}
	return Verdict{Addrs: []netip.Addr{self}}
}

func question(t testing.TB, name string, typ dnsmessage.Type, change func(*dnsmessage.Message)) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: typ, Class: dnsmessage.ClassINET}},
	}
	if change != nil {
		change(&m)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func read(t testing.TB, b []byte) dnsmessage.Message {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		t.Fatalf("%x: %v", b, err)
	}
	return m
}

// An allowed name has its address and nothing else, whatever is asked; another is not there.
func TestAnswer(t *testing.T) {
	for _, c := range []struct {
		name  string
		typ   dnsmessage.Type
		code  dnsmessage.RCode
		addrs int
	}{
		{"API.Example.com.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		{"api.example.com.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, 0},
		{"api.example.com.", 65, dnsmessage.RCodeSuccess, 0}, // HTTPS
		{"api.example.com.", 64, dnsmessage.RCodeSuccess, 0}, // SVCB
		{"api.example.com.", dnsmessage.TypeTXT, dnsmessage.RCodeSuccess, 0},
		{"api.example.com.", dnsmessage.TypeALL, dnsmessage.RCodeSuccess, 0},
		{"other.example.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"c2VjcmV0.example.com.", dnsmessage.TypeTXT, dnsmessage.RCodeNameError, 0},
		{".", dnsmessage.TypeNS, dnsmessage.RCodeNameError, 0},
	} {
		m := read(t, Answer(question(t, c.name, c.typ, nil), allowed))
		if m.ID != 7 || !m.Response || m.RCode != c.code || len(m.Answers) != c.addrs || len(m.Questions) != 1 || m.Questions[0].Name.String() != c.name {
			t.Errorf("%s %s: %+v", c.name, c.typ, m)
		}
		for _, a := range m.Answers {
			if a.Header.TTL != ttl || a.Body.(*dnsmessage.AResource).A != self.As4() || a.Header.Name.String() != c.name {
				t.Errorf("%s: %+v", c.name, a)
			}
		}
	}
}

func TestAnswerRefuses(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*dnsmessage.Message)
		code   dnsmessage.RCode
	}{
		"two questions": {func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }, dnsmessage.RCodeFormatError},
		"no question":   {func(m *dnsmessage.Message) { m.Questions = nil }, dnsmessage.RCodeFormatError},
		"an update":     {func(m *dnsmessage.Message) { m.OpCode = 5 }, dnsmessage.RCodeNotImplemented},
		"class CHAOS":   {func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS }, dnsmessage.RCodeRefused},
	} {
		m := read(t, Answer(question(t, "api.example.com.", dnsmessage.TypeA, c.change), allowed))
		if m.RCode != c.code || len(m.Answers) != 0 {
			t.Errorf("%s: %+v", what, m)
		}
	}
	answer := question(t, "api.example.com.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Response = true })
	if b := Answer(answer, allowed); b != nil {
		t.Errorf("an answer is answered: %x", b)
	}
	if b := Answer([]byte("short"), allowed); b != nil {
		t.Errorf("what is no message is answered: %x", b)
	}
}

// The longest answer is one packet.
func TestLongestAnswer(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 62)+".", 4)
	addrs := make([]netip.Addr, 100)
	for i := range addrs {
		addrs[i] = self
	}
	many := func(string, bool) Verdict { return Verdict{Addrs: addrs} }
	b := Answer(question(t, long, dnsmessage.TypeA, nil), many)
	if m := read(t, b); len(b) > 512 || len(m.Answers) != maxAddrs {
		t.Errorf("%d bytes, %d addresses", len(b), len(m.Answers))
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(question(f, "api.example.com.", dnsmessage.TypeA, nil))
	f.Add(question(f, "other.example.com.", dnsmessage.TypeTXT, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		asked := ""
		out := Answer(b, func(name string, addrs bool) Verdict {
			asked = name
			return allowed(name, addrs)
		})
		if out == nil {
			return
		}
		m := read(t, out)
		if !m.Response || len(out) > 512 {
			t.Fatalf("%+v in %d bytes", m, len(out))
		}
		for _, a := range m.Answers {
			if asked != "api.example.com" || a.Body.(*dnsmessage.AResource).A != self.As4() {
				t.Fatalf("%q is answered with %+v", asked, m)
			}
		}
	})
}
