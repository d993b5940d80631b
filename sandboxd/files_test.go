package sandboxd

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func filesURL(path string) string { return "/files?path=" + url.QueryEscape(path) }

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

const octets = "application/octet-stream"

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func TestUploadOctetStream(t *testing.T) {
	a := newAgent(t, Options{})
	dir := t.TempDir()
	for _, name := range []string{"a/b/plain", `ü "q" %41&+#;?`, " space ", "new\nline"} {
		path := filepath.Join(dir, name)
		a.want(200, `"type":"file"`, "POST", filesURL(path), "one\x00", "Content-Type", octets)
		a.want(200, `[{`, "POST", filesURL(path), zipped("two ✓"), "Content-Type", octets, "Content-Encoding", "gzip")
		if got := content(t, path); got != "two ✓" {
			t.Errorf("%q holds %q", name, got)
		}
		a.want(200, "two ✓", "GET", filesURL(path), "")
	}
	a.want(400, "directory", "POST", filesURL(dir), "x", "Content-Type", octets)
	a.want(400, "path", "POST", "/files", "x", "Content-Type", octets)
	a.want(400, "content type", "POST", filesURL(dir+"/x"), "x", "Content-Type", "text/plain")
	a.want(400, "gzip", "POST", filesURL(dir+"/x"), "x", "Content-Type", octets, "Content-Encoding", "gzip")
	a.want(400, "br", "POST", filesURL(dir+"/x"), "x", "Content-Type", octets, "Content-Encoding", "br")
	a.want(400, "zero", "POST", filesURL(dir+"/x\x00"), "x", "Content-Type", octets)
	a.want(400, "user-specific", "POST", filesURL("~bob/x"), "x", "Content-Type", octets)
	a.want(400, "user-specific", "GET", filesURL("~bob/x"), "")
	a.want(401, "nobody-here", "POST", filesURL(dir+"/x")+"&username=nobody-here", "x", "Content-Type", octets)
	if _, err := os.Stat(dir + "/x"); err == nil {
		t.Error("a refused upload left a file")
	}
}

func form(t *testing.T, parts ...string) (body, kind string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i < len(parts); i += 2 {
		p, err := w.CreateFormFile("file", parts[i])
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(p, parts[i+1])
	}
	_ = w.Close()
	return b.String(), w.FormDataContentType()
}

func TestUploadMultipart(t *testing.T) {
	a := newAgent(t, Options{})
	dir := t.TempDir()
	body, kind := form(t, dir+"/x/one", "1", dir+"/x/two", "2")
	a.want(200, "two", "POST", "/files", body, "Content-Type", kind)
	if content(t, dir+"/x/one") != "1" || content(t, dir+"/x/two") != "2" {
		t.Error("the parts are not where their names say")
	}
	body, kind = form(t, "ignored", "3")
	a.want(200, "three", "POST", filesURL(dir+"/three"), body, "Content-Type", kind)
	if content(t, dir+"/three") != "3" {
		t.Error("the path of the request did not win")
	}
	body, kind = form(t, "a", "1", "b", "2")
	a.want(400, "one path", "POST", filesURL(dir+"/four"), body, "Content-Type", kind)
	body, kind = form(t, dir+"/d", "1", dir+"/./d", "2")
	a.want(400, "twice", "POST", "/files", body, "Content-Type", kind)
	body, kind = form(t)
	if res, got := a.do("POST", "/files", body, "Content-Type", kind); res.StatusCode != 200 || strings.TrimSpace(got) != "[]" {
		t.Errorf("a form without files: %d %q", res.StatusCode, got)
	}
	a.want(400, "form", "POST", "/files", "--x\r\ncut", "Content-Type", "multipart/form-data; boundary=x")
}

func TestDownload(t *testing.T) {
	a := newAgent(t, Options{})
	dir := t.TempDir()
	path := dir + "/data.bin"
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	res, body := a.do("GET", filesURL(path), "", "Range", "bytes=2-4", "Accept-Encoding", "gzip")
	if res.StatusCode != 206 || body != "234" || res.Header.Get("Content-Range") != "bytes 2-4/10" || res.Header.Get("Content-Encoding") != "" {
		t.Errorf("range: %d %q %v", res.StatusCode, body, res.Header)
	}
	res, body = a.do("GET", filesURL(path), "", "Accept-Encoding", "deflate, gzip;q=0.5")
	if res.Header.Get("Content-Encoding") != "gzip" || res.Header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("gzip: %v", res.Header)
	}
	unzip, err := gzip.NewReader(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(unzip); err != nil || string(text) != "0123456789" {
		t.Errorf("gzip: %q %v", text, err)
	}
	res, _ = a.do("GET", filesURL(path), "", "Accept-Encoding", "gzip;q=0")
	if res.Header.Get("Content-Encoding") != "" || res.ContentLength != 10 {
		t.Errorf("gzip refused: %v", res.Header)
	}
	res, _ = a.do("GET", filesURL(path), "", "If-Modified-Since", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
	if res.StatusCode != 304 {
		t.Errorf("condition: %d", res.StatusCode)
	}
	if res, body = a.do("HEAD", filesURL(path), ""); res.StatusCode != 200 || body != "" || res.ContentLength != 10 {
		t.Errorf("HEAD: %d %d", res.StatusCode, res.ContentLength)
	}
	a.want(404, "does not exist", "GET", filesURL(dir+"/none"), "")
	a.want(400, "directory", "GET", filesURL(dir), "")
	a.want(400, "regular", "GET", filesURL(fifo(t)), "")
	a.want(401, "nobody-here", "GET", filesURL(path)+"&username=nobody-here", "")
}

// zeros is a body of n zero bytes that is made as it is read.
type zeros int64

func (z *zeros) Read(p []byte) (int, error) {
	if *z == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), int64(*z))
	clear(p[:n])
	*z -= zeros(n)
	return int(n), nil
}

func TestLargeFileInConstantMemory(t *testing.T) {
	a := newAgent(t, Options{})
	const size = 1 << 28
	path := t.TempDir() + "/big"
	body := zeros(size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	res, err := a.client.Post(a.url+filesURL(path), octets, &body)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	_ = res.Body.Close()
	res, err = a.client.Get(a.url + filesURL(path))
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(sha256.New(), res.Body)
	_ = res.Body.Close()
	runtime.ReadMemStats(&after)
	if err != nil || n != size {
		t.Errorf("%d bytes: %v", n, err)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 16<<20 {
		t.Errorf("%d MiB were allocated for a file of %d", allocated>>20, size>>20)
	}
}

func TestCompose(t *testing.T) {
	a := newAgent(t, Options{})
	dir := t.TempDir()
	for name, text := range map[string]string{"1": "one ", "2": "two ", "3": "three"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	quoted := func(names ...string) string { return `"` + dir + "/" + strings.Join(names, `","`+dir+"/") + `"` }
	a.want(404, "", "POST", "/files/compose", `{"source_paths":[`+quoted("1", "none")+`],"destination":`+quoted("all")+`}`)
	a.want(400, "required", "POST", "/files/compose", `{}`)
	must(t, os.Link(dir+"/1", dir+"/hard"), os.Symlink("1", dir+"/soft"))
	for _, destination := range []string{"1", "hard", "soft", "./x/../1"} {
		a.want(400, "same as destination", "POST", "/files/compose", `{"source_paths":[`+quoted("1", "2", "3")+`],"destination":`+quoted(destination)+`}`)
	}
	if got := content(t, dir+"/1") + content(t, dir+"/2"); got != "one two " {
		t.Fatalf("what was refused changed the sources: %q", got)
	}
	must(t, os.Remove(dir+"/hard"), os.Remove(dir+"/soft"))
	a.want(400, "metadata", "POST", "/files/compose", `{"source_paths":[`+quoted("1")+`],"destination":`+quoted("all")+`}`, "X-Metadata-Key", "ü")
	a.want(200, `"name":"all"`, "POST", "/files/compose", `{"source_paths":[`+quoted("1", "2", "3", "1")+`],"destination":`+quoted("all")+`}`)
	if got := content(t, dir+"/all"); got != "one two threeone " {
		t.Errorf("%q", got)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left: %v", entries)
	}
}
