package template

import (
	"archive/tar"
	"compress/gzip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	r, err := parse(`# a comment
FROM python:3.13-slim AS app
ENV COLOUR=green NAME="two words" \
    # a comment in between
    LAST='a b'
ENV OLD form of it
WORKDIR /app
COPY --chown=user:group --chmod=755 a.py b.py /app/
RUN pip install x && \
    echo done
run ["echo", "it's"]
USER user:group
EXPOSE 8000
CMD ["python3", "a.py"]
`)
	if err != nil {
		t.Fatal(err)
	}
	want := &recipe{image: "python:3.13-slim", start: "'python3' 'a.py'", steps: []step{
		{Type: "USER", Args: []string{"root"}},
		{Type: "WORKDIR", Args: []string{"/"}},
		{Type: "ENV", Args: []string{"COLOUR", "green", "NAME", "two words", "LAST", "a b"}},
		{Type: "ENV", Args: []string{"OLD", "form of it"}},
		{Type: "WORKDIR", Args: []string{"/app"}},
		{Type: "COPY", Args: []string{"a.py", "/app/", "user", "755"}},
		{Type: "COPY", Args: []string{"b.py", "/app/", "user", "755"}},
		{Type: "RUN", Args: []string{"pip install x && echo done"}},
		{Type: "RUN", Args: []string{`'echo' 'it'\''s'`}},
		{Type: "USER", Args: []string{"user"}},
	}}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("\n got %+v\nwant %+v", r, want)
	}
	if r, err := parse("FROM a"); err != nil || !reflect.DeepEqual(r.steps[2:], []step{{Type: "USER", Args: []string{"user"}}, {Type: "WORKDIR", Args: []string{"/home/user"}}}) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "no FROM",
		"RUN x":                           "line 1: RUN: is before FROM",
		"FROM a\nFROM b":                  "line 2: FROM: a build has one stage",
		"FROM $BASE":                      "names one image",
		"FROM --platform=linux/arm64 a":   "names one image",
		"FROM a\n\nCOPY --from=b /x /y":   "line 3: COPY: has the flag --from",
		"FROM a\nADD https://x.example y": "no file of the context",
		"FROM a\nCOPY a b c":              "must end with a slash",
		"FROM a\nCOPY a":                  "needs a source and a destination",
		"FROM a\nRUN --mount=type=x y":    "has a flag",
		"FROM a\nRUN <<EOF\nx\nEOF":       "here-document",
		"FROM a\nENV A=\"b":               "quote without its end",
		"FROM a\nENV A=b C":               "C has no value",
		"FROM a\nCMD a\nENTRYPOINT b":     "second start command",
		"FROM a\nVOLUME /x":               "VOLUME: is not supported",
		"FROM a\nRUN":                     "has no arguments",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Equal files have equal hashes, whenever they were written; what .dockerignore names, and what is
// outside, is not sent.
func TestContext(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"app/main.py", "app/deep/x.log", "app/deep/keep.log", "node_modules/a/b", "one", "cache1", "cacheX"} {
		write(name, name)
	}
	write(".dockerignore", "# a comment\n/node_modules/\n**/*.log\n!app/deep/keep.log\ncache[0-9]\n")
	c, err := openContext(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := func(source string) (all []string, hash string) {
		t.Helper()
		f, size, hash, err := c.archive(source)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || info.Size() != size {
			t.Errorf("%s: %d bytes, %v", source, size, err)
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		for r := tar.NewReader(z); ; {
			h, err := r.Next()
			if err != nil {
				return all, hash
			}
			all = append(all, h.Name)
		}
	}
	for source, want := range map[string][]string{
		"app":  {"app/", "app/deep/", "app/deep/keep.log", "app/main.py"},
		"./o*": {"one"}, ".": {".dockerignore", "app/", "app/deep/", "app/deep/keep.log", "app/main.py", "cacheX", "one"},
	} {
		if got, _ := names(source); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
	_, before := names("app")
	if err := os.Chtimes(filepath.Join(dir, "app/main.py"), fixedTime, fixedTime); err != nil {
		t.Fatal(err)
	}
	if _, after := names("app"); after != before {
		t.Error("a time changes the hash")
	}
	write("app/main.py", "other")
	if _, after := names("app"); after == before {
		t.Error("a content does not change the hash")
	}
	for source, want := range map[string]string{"../x": "outside", "missing": "not in the context", "node_modules": ".dockerignore"} {
		if _, _, _, err := c.archive(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", source, err, want)
		}
	}
	write(".dockerignore", "cache[")
	if _, err := openContext(dir); err == nil || !strings.Contains(err.Error(), ".dockerignore") {
		t.Errorf("a pattern that is none: %v", err)
	}
}
