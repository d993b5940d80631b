package inuse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
)

const clustersText = `sandbox::observability_name::sandbox
sandbox::default_priority::max_connections::20000
sandbox::default_priority::max_requests::20000
sandbox::added_via_api::false
sandbox::198.18.0.5:8000::cx_active::3
sandbox::198.18.0.5:8000::rq_active::1
sandbox::198.18.0.5:8000::rq_error::7
sandbox::198.18.0.5:8000::hostname::
sandbox::198.18.0.5:8000::rq_active::2
sandbox::198.18.0.5:9000::rq_active::4
sandbox::198.18.0.6:8000::rq_active::0
sandbox::[fd00::5]:8000::rq_active::1
sandbox::[fd00::5]:8001::rq_active::1
sandbox::[::ffff:198.18.0.7]:8000::rq_active::1
sandbox2::198.18.0.9:8000::rq_active::9
extproc::/run/extproc.sock::rq_active::5
`

func TestParseActive(t *testing.T) {
	got, connections, err := parseActive(strings.NewReader(clustersText), "sandbox")
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.Addr]uint64{
		netip.MustParseAddr("198.18.0.5"): 7,
		netip.MustParseAddr("fd00::5"):    2,
		netip.MustParseAddr("198.18.0.7"): 1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if want := map[netip.Addr]uint64{netip.MustParseAddr("198.18.0.5"): 3}; !maps.Equal(connections, want) {
		t.Errorf("connections %v, want %v", connections, want)
	}
}

func TestParseActiveErrors(t *testing.T) {
	for name, text := range map[string]string{
		"empty":              "",
		"no such cluster":    "other::198.18.0.5:8000::rq_active::1\n",
		"count is no number": "sandbox::198.18.0.5:8000::rq_active::many\n",
		"negative count":     "sandbox::198.18.0.5:8000::rq_active::-1\n",
		"cut off":            "sandbox::198.18.0.5:8000::rq_active::",
		"no address":         "sandbox::somewhere::rq_active::1\n",
		"no port":            "sandbox::198.18.0.5::rq_active::1\n",
		"a line too long":    "sandbox::" + strings.Repeat("x", maxLine) + "\n",
	} {
		if got, _, err := parseActive(strings.NewReader(text), "sandbox"); err == nil {
			t.Errorf("%s: no error, %v", name, got)
		}
	}
	broken := io.MultiReader(strings.NewReader(clustersText), iotest.ErrReader(errors.New("connection reset")))
	if _, _, err := parseActive(broken, "sandbox"); err == nil {
		t.Error("an answer that breaks off is no error")
	}
}

func FuzzParseActive(f *testing.F) {
	f.Add([]byte(clustersText))
	f.Add([]byte("sandbox::[fd00::5%eth0]:8000::rq_active::1\nsandbox::::rq_active::1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, _, err := parseActive(bytes.NewReader(text), "sandbox")
		if err != nil {
			if got != nil {
				t.Fatalf("both %v and %v", got, err)
			}
			return
		}
		for addr, n := range got {
			if !addr.IsValid() || n == 0 {
				t.Fatalf("%v has %d", addr, n)
			}
			if !bytes.Contains(text, []byte("::rq_active::")) {
				t.Fatalf("%v out of nothing", addr)
			}
		}
	})
}

// manyClusters is an answer with that many addresses, on as many lines as Envoy's.
func manyClusters(addresses, open int) []byte {
	var b bytes.Buffer
	addr := netip.MustParseAddr("198.18.0.0")
	for i := range addresses {
		addr = addr.Next()
		for _, figure := range []string{"cx_active", "cx_connect_fail", "cx_total", "rq_active", "rq_error", "rq_success",
			"rq_timeout", "rq_total", "hostname", "health_flags", "weight", "region", "zone", "sub_zone", "canary", "priority", "success_rate", "local_origin_success_rate"} {
			n := 0
			if figure == "rq_active" && i < open {
				n = 1
			}
			fmt.Fprintf(&b, "sandbox::%s:8000::%s::%d\n", addr, figure, n)
		}
	}
	return b.Bytes()
}

func BenchmarkParseActive(b *testing.B) {
	text := manyClusters(10_000, 1000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if got, _, err := parseActive(bytes.NewReader(text), "sandbox"); err != nil || len(got) != 1000 {
			b.Fatal(len(got), err)
		}
	}
}
