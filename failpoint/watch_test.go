//go:build failpoints

package failpoint

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
)

const point = "gateway/watch"

// arm points the package at a folder of the test's and returns how to say what
// the point does; an empty text disarms it.
func arm(t *testing.T) func(text string) {
	t.Helper()
	before := folder
	folder = t.TempDir()
	t.Cleanup(func() { folder = before })
	file := filepath.Join(folder, filepath.FromSlash(point))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	return func(text string) {
		t.Helper()
		err := os.Remove(file)
		if text != "" {
			err = os.WriteFile(file, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// open sends a request whose answer is what the test writes.
func open(t *testing.T, url string) (*io.PipeWriter, io.ReadCloser) {
	t.Helper()
	r, w := io.Pipe()
	rt := Watches(point)(transport(func(*http.Request) (*http.Response, error) { return &http.Response{Body: r}, nil }))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return w, res.Body
}

// seen is one thing that a reader met, and when.
type seen struct {
	text  string
	after time.Duration
}

// follow reads until an error and returns what came.
func follow(body io.Reader, began time.Time) <-chan []seen {
	out := make(chan []seen, 1)
	go func() {
		var all []seen
		buffer := make([]byte, 16)
		for {
			n, err := body.Read(buffer)
			if n > 0 {
				all = append(all, seen{string(buffer[:n]), time.Since(began)})
			}
			if err != nil {
				out <- append(all, seen{err.Error(), time.Since(began)})
				return
			}
		}
	}()
	return out
}

func want(t *testing.T, got, want []seen) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("came %v, want %v", got, want)
	}
	for i, w := range want {
		if g := got[i]; g.text != w.text || g.after < w.after || g.after > w.after+poll {
			t.Errorf("%q came after %v, want %q after %v", g.text, g.after, w.text, w.after)
		}
	}
}

func write(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Error(err)
	}
}

// Each piece of a watch comes the delay later than it was sent, its end too, and
// the sender never waits for the reader.
func TestWatchIsLate(t *testing.T) {
	set := arm(t)
	set("delay 5s")
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		w, body := open(t, "https://api/pods?watch=true")
		got := follow(body, began)
		write(t, w, "one")
		time.Sleep(time.Second) // of the bubble's clock
		write(t, w, "two")
		write(t, w, "a long one, in two reads")
		_ = w.CloseWithError(errors.New("the end"))
		if sent := time.Since(began); sent != time.Second {
			t.Errorf("the sender had to wait: %v", sent)
		}
		want(t, <-got, []seen{
			{"one", 5 * time.Second}, {"two", 6 * time.Second},
			{"a long one, in t", 6 * time.Second}, {"wo reads", 6 * time.Second}, {"the end", 6 * time.Second},
		})
	})
}

// What was held back comes at once when the delay ends, in its order, and what
// follows is not late.
func TestWatchCatchesUp(t *testing.T) {
	set := arm(t)
	set("delay 1h")
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		w, body := open(t, "https://api/pods?allowWatchBookmarks=true&watch=1")
		got := follow(body, began)
		var expected []seen
		for i := range 100 {
			text := fmt.Sprint(i)
			write(t, w, text)
			expected = append(expected, seen{text, time.Minute})
		}
		time.Sleep(time.Minute) // of the bubble's clock
		set("")
		time.Sleep(time.Minute)
		write(t, w, "late")
		_ = w.Close()
		want(t, <-got, append(expected, seen{"late", 2 * time.Minute}, seen{"EOF", 2 * time.Minute}))
	})
}

// Only watches are late: a fence, a live read and a list come as they are sent.
func TestOtherRequestsAreNotLate(t *testing.T) {
	set := arm(t)
	set("delay 1h")
	bubble.Test(t, func(t *testing.T) {
		for _, url := range []string{"https://api/pods", "https://api/pods?watch=false", "https://api/pods/watch?resourceVersion=0"} {
			began := time.Now()
			w, body := open(t, url)
			got := follow(body, began)
			write(t, w, "x")
			_ = w.Close()
			want(t, <-got, []seen{{"x", 0}, {"EOF", 0}})
		}
	})
}

// A closed watch ends both its readers, of events and of the connection; synctest
// fails if a goroutine is left.
func TestClosedWatchEnds(t *testing.T) {
	for _, text := range []string{"delay 1h", ""} {
		set := arm(t)
		if text != "" {
			set(text)
		}
		bubble.Test(t, func(t *testing.T) {
			w, body := open(t, "https://api/pods?watch=true")
			got := follow(body, time.Now())
			if text != "" {
				write(t, w, "held back")
			}
			synctest.Wait()
			if err := body.Close(); err != nil {
				t.Error(err)
			}
			want(t, <-got, []seen{{http.ErrBodyReadAfterClose.Error(), 0}})
			if _, err := io.WriteString(w, "more"); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("the connection is still read: %v", err)
			}
		})
	}
}
