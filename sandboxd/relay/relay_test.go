package relay

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ports(all ...string) (out []netip.AddrPort) {
	for _, text := range all {
		out = append(out, netip.MustParseAddrPort(text))
	}
	return out
}

// What is relayed is the loopback's, unless the port is served otherwise already.
func TestWanted(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")}
	const except = 49983
	for what, c := range map[string]struct {
		listeners []netip.AddrPort
		mine      []netip.AddrPort
		want      map[string][]netip.AddrPort
	}{
		"nothing":           {},
		"IPv4":              {ports("127.0.0.1:80"), nil, map[string][]netip.AddrPort{"10.0.0.9:80": ports("127.0.0.1:80"), "[fd00::9]:80": ports("127.0.0.1:80")}},
		"IPv6":              {ports("[::1]:80"), nil, map[string][]netip.AddrPort{"10.0.0.9:80": ports("[::1]:80"), "[fd00::9]:80": ports("[::1]:80")}},
		"both":              {ports("[::1]:80", "127.0.0.1:80"), nil, map[string][]netip.AddrPort{"10.0.0.9:80": ports("127.0.0.1:80", "[::1]:80"), "[fd00::9]:80": ports("[::1]:80", "127.0.0.1:80")}},
		"all of IPv4":       {ports("127.0.0.1:80", "0.0.0.0:80"), nil, nil},
		"all of IPv6":       {ports("127.0.0.1:80", "[::]:80"), nil, nil},
		"another port":      {ports("127.0.0.1:80", "0.0.0.0:81"), nil, map[string][]netip.AddrPort{"10.0.0.9:80": ports("127.0.0.1:80"), "[fd00::9]:80": ports("127.0.0.1:80")}},
		"the own address":   {ports("127.0.0.1:80", "10.0.0.9:80"), nil, map[string][]netip.AddrPort{"[fd00::9]:80": ports("127.0.0.1:80")}},
		"the relay itself":  {ports("127.0.0.1:80", "10.0.0.9:80", "[fd00::9]:80"), ports("10.0.0.9:80", "[fd00::9]:80"), map[string][]netip.AddrPort{"10.0.0.9:80": ports("127.0.0.1:80"), "[fd00::9]:80": ports("127.0.0.1:80")}},
		"sandboxd's":        {ports("127.0.0.1:49983"), nil, nil},
		"other loopback":    {ports("127.0.0.53:53"), nil, nil},
		"only other's ends": {ports("10.0.0.9:80"), ports("10.0.0.9:80"), nil},
	} {
		got := wanted(c.listeners, own, except, func(at netip.AddrPort) bool { return slices.Contains(c.mine, at) })
		want := map[netip.AddrPort][]netip.AddrPort{}
		for at, servers := range c.want {
			want[netip.MustParseAddrPort(at)] = servers
		}
		if !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
}

// The lines are of a machine whose processor is little-endian, as ours are.
func TestParse(t *testing.T) {
	const file = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1388 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 2 0 100 0 0 10 0
   1: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0
   2: 0100007F:0A0A 0100007F:0A0A 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 100 0 0 10 0
   3: 00000000000000000000000001000000:1389 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4
   4: 0000000000000000FFFF00000100007F:138A 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 5
   5: 00000000000000000000000000000000:138B 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 6
   6: 0100007F:13880 00000000:0000 0A
   7: 0100007:1388 00000000:0000 0A
   8: 01007F:1388 00000000:0000 0A
   9: 0A
`
	got, err := parse(nil, strings.NewReader(file))
	want := ports("127.0.0.1:5000", "0.0.0.0:2024", "[::1]:5001", "127.0.0.1:5002", "[::]:5003")
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}
