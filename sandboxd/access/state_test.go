package access

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A repeated /init sets the clock forward only: an old request that was recorded and is
// sent again changes nothing.
func TestClock(t *testing.T) {
	var set []string
	s := New(Options{SetClock: func(at time.Time) error {
		set = append(set, at.UTC().Format("15:04"))
		return nil
	}})
	for _, at := range []string{"10:00", "11:00", "10:30", "11:00", "12:00"} {
		w := httptest.NewRecorder()
		s.Init(w, httptest.NewRequest("POST", "/init", strings.NewReader(`{"accessToken":"t","timestamp":"2026-01-01T`+at+`:00Z"}`)))
		if w.Code != 204 {
			t.Errorf("%s: %d %s", at, w.Code, w.Body)
		}
	}
	if got := strings.Join(set, " "); got != "10:00 11:00 12:00" {
		t.Errorf("the clock was set to %s", got)
	}
}

// The message that gateways sign, written down again; theirs have the same test.
func TestInitMessage(t *testing.T) {
	s := New(Options{PodUID: "pod-1"})
	s.nonce = "n\n"
	header := http.Header{"Sandlane-Sandbox-Id": {"i0"}, "Sandlane-Template-Id": {"base"}}
	const want = "sandlane init 1\n\"pod-1\"\n\"n\\n\"\n\"i0\"\n\"base\"\n" +
		"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n"
	if got := string(s.initMessage(header, []byte("abc"))); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
