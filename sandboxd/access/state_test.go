package access

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandlane/sandlane/sandboxd/users"
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

// A sandbox that has its ordinary user is never served as root instead, whatever a program
// does to passwd.
func TestDefaultUser(t *testing.T) {
	const root, both = "root:x:0:0::/root:/bin/sh\n", "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"
	unreadable := func(file string) error { return os.Mkdir(file, 0o700) } // also for root
	content := func(text string) func(string) error {
		return func(file string) error { return os.WriteFile(file, []byte(text), 0o600) }
	}
	for _, c := range []struct {
		name          string
		before, after func(file string) error
		first, second string // an empty name: an error
	}{
		{"no file, as in a minimal image", nil, nil, "root", "root"},
		{"no such user", content(root), content(root), "root", "root"},
		{"the user is made later", content(root), content(both), "root", "user"},
		{"the file cannot be read", unreadable, content(both), "", "user"},
		{"the file cannot be read any more", content(both), unreadable, "user", ""},
		{"the file is gone", content(both), nil, "user", ""},
		{"the file is being written", content(both), content(root), "user", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "passwd")
			s := New(Options{Users: users.Database{Dir: filepath.Dir(file), UID: func() int { return 0 }}})
			for i, step := range []struct {
				write func(string) error
				want  string
			}{{c.before, c.first}, {c.after, c.second}} {
				if err := os.RemoveAll(file); err != nil {
					t.Fatal(err)
				}
				if step.write != nil {
					if err := step.write(file); err != nil {
						t.Fatal(err)
					}
				}
				name := ""
				u, err := s.Named("")
				if err == nil {
					if name = u.Name; u.UID == 0 {
						name = "root"
					}
				}
				if name != step.want {
					t.Errorf("step %d: %q, %v; want %q", i, name, err, step.want)
				}
			}
		})
	}
}
