package files

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/sandboxd/users"
)

// confined is a caller whose files are all below one folder.
type confined struct{ users.User }

func (n confined) Named(string) (users.User, error) { return n.User, nil }
func (n confined) Workdir() string                  { return n.Home }

// home returns a service for a user whose home is a new folder, emptied by clear.
func home(f *testing.F) (s *Service, dir string, clear func()) {
	f.Helper()
	dir = f.TempDir()
	n := confined{users.User{Name: "me", UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Home: filepath.Join(dir, "home")}}
	clear = func() {
		if err := os.RemoveAll(n.Home); err != nil {
			panic(err)
		}
		if err := os.Mkdir(n.Home, 0o755); err != nil {
			panic(err)
		}
	}
	return New(n, func(_ context.Context, u users.User) Opener { return Local(u) }), n.Home, clear
}

// within reports whether a request for a path stays below the home. Only such
// paths are tried: this process may be root, and writes where it is told to.
func within(home, path string) bool {
	resolved, err := users.User{Home: home}.Resolve(path, home)
	return err == nil && strings.HasPrefix(resolved, home+"/")
}

// ask sends a request to a handler; an answer that blames the server is a failure.
func ask(t *testing.T, handle http.HandlerFunc, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	handle(w, r)
	if w.Code >= 500 {
		t.Errorf("%s %q: %d %s", r.Method, r.URL, w.Code, w.Body)
	}
	return w
}

// stored are the regular files below a folder.
func stored(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Whatever the path: it is refused, or what was written is there, under that name
// alone, and comes back.
func FuzzPath(f *testing.F) {
	for _, path := range []string{"a", "a/b/c", ".", "..", "~", "~/x", "~x", "~bob/x", "a/../b", "a//b/", " ", "\n", "%2e%2e/x", "a\x00b", "\xff\xfe", "ü", strings.Repeat("n", 300), strings.Repeat("d/", 300) + "x", ".sandboxd", "a?b=c#d&e"} {
		f.Add(path, []byte("text"))
	}
	s, dir, clear := home(f)
	f.Fuzz(func(t *testing.T, path string, text []byte) {
		clear()
		to := "/files?" + url.Values{"path": {path}}.Encode()
		want, err := users.User{Home: dir}.Resolve(path, dir)
		if err != nil {
			r := httptest.NewRequest("POST", to, bytes.NewReader(text))
			r.Header.Set("Content-Type", "application/octet-stream")
			if w := ask(t, s.Upload, r); w.Code != 400 {
				t.Errorf("the path %q: %d %s", path, w.Code, w.Body)
			}
			return
		}
		if !within(dir, path) {
			return
		}
		r := httptest.NewRequest("POST", to, bytes.NewReader(text))
		r.Header.Set("Content-Type", "application/octet-stream")
		w := ask(t, s.Upload, r)
		all := stored(t, dir)
		if w.Code != 200 {
			if len(all) > 0 {
				t.Errorf("%q was answered with %d and left %v", path, w.Code, all)
			}
			return
		}
		if len(all) != 1 || all[want] != string(text) {
			t.Errorf("%q holds %v, want %q in %q", path, all, text, want)
		}
		w = ask(t, s.Download, httptest.NewRequest("GET", to, nil))
		if w.Code != 200 || !bytes.Equal(w.Body.Bytes(), text) {
			t.Errorf("%q reads %d %q, want %q", path, w.Code, w.Body, text)
		}
	})
}

// A form of two files under any names and a text field between them: each file is
// at its path with its content, or the answer says what is wrong.
func FuzzMultipartNames(f *testing.F) {
	for _, names := range [][2]string{{"a", "b"}, {"a", "a"}, {"a/b", "a"}, {"../home/x", "~/y"}, {"", "x"}, {`q"uote`, `back\slash`}, {"new\nline", "cr\r"}, {"ü", "\xff"}, {"a;b=c", "utf-8''%41"}, {".", "x"}} {
		f.Add(names[0], names[1], []byte("one"), []byte("two\r\n--x"))
	}
	s, dir, clear := home(f)
	f.Fuzz(func(t *testing.T, first, second string, one, two []byte) {
		if !within(dir, first) || !within(dir, second) {
			return
		}
		clear()
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		add := func(name string, text []byte) {
			part, err := form.CreateFormFile("file", name)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = part.Write(text)
		}
		add(first, one)
		_ = form.WriteField("other", "not a file")
		add(second, two)
		_ = form.Close()
		r := httptest.NewRequest("POST", "/files", &body)
		r.Header.Set("Content-Type", form.FormDataContentType())
		w := ask(t, s.Upload, r)
		all := stored(t, dir)
		if w.Code != 200 {
			if len(all) > 1 || len(all) == 1 && !contains(all, one) {
				t.Errorf("%q and %q: %d %s, and there are %v", first, second, w.Code, w.Body, all)
			}
			return
		}
		if len(all) != 2 || !contains(all, one) || !contains(all, two) {
			t.Errorf("%q and %q: there are %v, want %q and %q", first, second, all, one, two)
		}
	})
}

func contains(all map[string]string, text []byte) bool {
	for _, is := range all {
		if is == string(text) {
			return true
		}
	}
	return false
}

// Any body that calls itself a form: what is answered with 200 names the files
// that are there, and what is refused leaves no half of a file.
func FuzzMultipart(f *testing.F) {
	part := func(disposition, text string) string {
		return "--x\r\nContent-Disposition: " + disposition + "\r\n\r\n" + text + "\r\n"
	}
	for _, body := range []string{
		part(`form-data; name="file"; filename="a"`, "one") + "--x--\r\n",
		part(`form-data; name="file"; filename="a"`, "one") + part(`form-data; name="file"; filename="b"`, "two") + "--x--",
		part(`form-data; name=file`, "one") + "--x--", part(`form-data; name="file"; filename="a"; filename="b"`, "x") + "--x--",
		part(`form-data; name="file"; filename="a"`, "cut"), "--x", "--x--", "", "--x\n\n", "--x\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\na=\r\n--x--",
		part(`;`, "") + "--x--", part(`form-data; name="file"; filename=".."`, "up") + "--x--",
	} {
		f.Add("", "multipart/form-data; boundary=x", []byte(body))
		f.Add("given", `multipart/form-data; boundary="x"`, []byte(body))
	}
	f.Add("p", "multipart/form-data", []byte("--x--"))
	f.Add("p", "application/octet-stream; boundary=x", []byte("--x--"))
	s, dir, clear := home(f)
	f.Fuzz(func(t *testing.T, path, kind string, body []byte) {
		// Without these no name in the form leads out of the home; with them
		// FuzzMultipartNames goes on.
		if path != "" && !within(dir, path) || bytes.ContainsAny(body, "/%~") {
			return
		}
		clear()
		r := httptest.NewRequest("POST", "/files?"+url.Values{"path": {path}}.Encode(), bytes.NewReader(body))
		r.Header.Set("Content-Type", kind)
		w := ask(t, s.Upload, r)
		all := stored(t, dir)
		for name := range all {
			if !bytes.Contains(body, []byte(all[name])) && len(all[name]) > 0 && !quotedPrintable(body) {
				t.Errorf("%q holds %q, which the body does not have", name, all[name])
			}
		}
		if w.Code != 200 {
			return
		}
		var entries []entry
		if err := json.Unmarshal(w.Body.Bytes(), &entries); err != nil || len(entries) != len(all) {
			t.Errorf("%s names %d files, there are %v: %v", w.Body, len(entries), all, err)
		}
	})
}

func quotedPrintable(body []byte) bool {
	return bytes.Contains(bytes.ToLower(body), []byte("quoted-printable"))
}
