package credentials

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/test/kubetest"
)

func TestTokens(t *testing.T) {
	tokens, err := NewTokens(bytes.Repeat([]byte{7}, seedLength))
	if err != nil {
		t.Fatal(err)
	}
	// printf sandbox-traffic-hello | openssl dgst -sha256 -mac HMAC -macopt hexkey:0707…07
	const want = "b5e098430d4ad5d6523de28ce6239119dd89d54f12765904647f1d9dcc25ecfa"
	if got := tokens.Traffic("hello"); got != want {
		t.Errorf("traffic token %s, want %s", got, want)
	}
	for name, tc := range map[string]struct {
		id, token string
		valid     bool
	}{
		"right":         {"hello", want, true},
		"upper case":    {"hello", strings.ToUpper(want), false},
		"empty":         {"hello", "", false},
		"prefix":        {"hello", want[:63], false},
		"another's":     {"hello", tokens.Traffic("hullo"), false},
		"envd's":        {"hello", tokens.Envd("hello"), false},
		"a chosen name": {"hello", tokens.Envd("sandbox-traffic-hello"), false},
	} {
		if got := tokens.ValidTraffic(tc.id, tc.token); got != tc.valid {
			t.Errorf("%s: valid = %v, want %v", name, got, tc.valid)
		}
	}
}

func TestNewTokensRefusesShortSeed(t *testing.T) {
	for _, n := range []int{0, 31, 33} {
		if _, err := NewTokens(make([]byte, n)); err == nil {
			t.Errorf("a seed of %d bytes was taken", n)
		}
	}
}

// Many processes start at once: one seed.
func TestLoadTokens(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	got := make([]string, 8)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			tokens, err := LoadTokens(t.Context(), c, ns)
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = tokens.Traffic("hello")
		})
	}
	wg.Wait()
	for _, token := range got {
		if token != got[0] {
			t.Fatalf("tokens differ: %v", got)
		}
	}
	var secret corev1.Secret
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: seedSecret}, &secret); err != nil {
		t.Fatal(err)
	}
	secret.Data[dataSeed] = []byte("known")
	if err := c.Update(t.Context(), &secret); err == nil {
		t.Error("the seed can be changed")
	}
}

// maxTrafficAllocs is what deriving a token takes: two HMAC states, two sums and
// three texts.
const maxTrafficAllocs = 9

func TestValidTrafficAllocations(t *testing.T) {
	tokens, err := NewTokens(bytes.Repeat([]byte{7}, seedLength))
	if err != nil {
		t.Fatal(err)
	}
	token := tokens.Traffic("hello")
	if n := testing.AllocsPerRun(100, func() { tokens.ValidTraffic("hello", token) }); n > maxTrafficAllocs {
		t.Errorf("%v allocations, want at most %d", n, maxTrafficAllocs)
	}
}

func BenchmarkValidTraffic(b *testing.B) {
	tokens, err := NewTokens(bytes.Repeat([]byte{7}, seedLength))
	if err != nil {
		b.Fatal(err)
	}
	token := tokens.Traffic("hello")
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !tokens.ValidTraffic("hello", token) {
				b.Fatal("refused")
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				tokens.ValidTraffic("hello", token)
			}
		})
	})
}
