package access

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A repeated /init sets the clock forward only: an old request sent again, by
// whoever recorded it, changes nothing.
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
