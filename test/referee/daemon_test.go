package referee

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	start   = "envd POST /process.Process/Start"
	fsystem = "envd POST /filesystem.Filesystem/"
)

// processFaults are those of commands and terminals.
var processFaults = []fault{
	{"an exit code is always 0", "processes", "terminals", on(start, messages(func(m map[string]any) map[string]any {
		delete(object(m, "event", "end"), "exitCode")
		return m
	}))},
	{"standard error arrives as standard output", "processes", "", on(start, messages(func(m map[string]any) map[string]any {
		if data := object(m, "event", "data"); data["stderr"] != nil {
			data["stdout"] = data["stderr"]
			delete(data, "stderr")
		}
		return m
	}))},
	{"a command's working directory is ignored", "processes", "terminals", on(start, without("process.cwd"))},
	{"a command's variables are ignored", "processes", "terminals", on(start, without("process.envs"))},
	{"a command's timeout is ignored", "processes", "terminals watches", func(c *call) (*http.Response, error) {
		c.Header.Del("Connect-Timeout-Ms")
		return on(start, pass)(c)
	}},
	{"output beyond 256 KiB is lost", "processes", "", func(c *call) (*http.Response, error) {
		var n atomic.Int64
		return on(start, messages(func(m map[string]any) map[string]any {
			text, _ := object(m, "event", "data")["stdout"].(string)
			if n.Add(int64(len(text))) > 256<<10*4/3 {
				return nil
			}
			return m
		}))(c)
	}},
	{"the kill of no process succeeds", "processes", "terminals", on("envd POST /process.Process/SendSignal", becomes(404, 200, "{}"))},
	{"commands run as root whoever is asked for", "processes", "entries", on(start, func(c *call) (*http.Response, error) {
		if !bytes.Contains(c.read(), []byte(`"pty"`)) {
			c.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("root:")))
		}
		return c.send()
	})},
	{"a list of processes is empty", "processes", "pauses terminals", on("envd POST /process.Process/List", becomes(200, 200, `{"processes":[]}`))},

	{"a terminal's size is swapped", "terminals", "", on(start, asked(func(_ *call, m map[string]any) {
		if size := object(m, "pty", "size"); size != nil {
			size["cols"], size["rows"] = size["rows"], size["cols"]
		}
	}))},
	{"a resize is answered and not done", "terminals", "", on("envd POST /process.Process/Update", say(200, "{}"))},
	{"a terminal's output arrives as standard output", "terminals", "", on(start, messages(func(m map[string]any) map[string]any {
		if data := object(m, "event", "data"); data["pty"] != nil {
			data["stdout"] = data["pty"]
			delete(data, "pty")
		}
		return m
	}))},
}

// entry changes each entry that unary calls answer with.
func entry(change func(e map[string]any)) hop {
	return onAny(answered(func(m map[string]any) {
		if e := object(m, "entry"); e != nil {
			change(e)
		}
		entries, _ := m["entries"].([]any)
		for _, e := range entries {
			change(e.(map[string]any))
		}
	}), fsystem+"Stat", fsystem+"ListDir", fsystem+"MakeDir", fsystem+"Move")
}

// entryFaults are those of folders and of what is in them.
var entryFaults = []fault{
	{"a file's size is one less", "entries", "", entry(func(e map[string]any) {
		if n, err := strconv.Atoi(fmt.Sprint(e["size"])); err == nil && n > 0 && e["type"] == "FILE_TYPE_FILE" {
			e["size"] = strconv.Itoa(n - 1)
		}
	})},
	{"a listing loses its last entry", "entries", "", on(fsystem+"ListDir", answered(func(m map[string]any) {
		if entries, _ := m["entries"].([]any); len(entries) > 0 {
			m["entries"] = entries[:len(entries)-1]
		}
	}))},
	{"a rename is reported and not done", "entries", "watches", on(fsystem+"Move", func(c *call) (*http.Response, error) {
		var move struct{ Source, Destination string }
		if err := json.Unmarshal(c.read(), &move); err != nil {
			return c.send()
		}
		text, err := json.Marshal(map[string]string{"path": move.Source})
		if err != nil {
			return nil, err
		}
		c.URL.Path = path.Dir(c.URL.Path) + "/Stat"
		c.write(text)
		return answered(func(m map[string]any) {
			e := object(m, "entry")
			e["path"], e["name"] = move.Destination, path.Base(move.Destination)
		})(c)
	})},
	{"a removal is reported and not done", "entries", "watches", on(fsystem+"Remove", say(200, "{}"))},
	{"the depth of a listing is ignored", "entries", "", on(fsystem+"ListDir", without("depth"))},
	{"a link is not shown as one", "entries", "", entry(func(e map[string]any) {
		delete(e, "symlinkTarget")
		delete(e, "isSymlink")
	})},
	{"a folder is made again", "entries", "", on(fsystem+"MakeDir", becomes(409, 200, "{}"))},
	{"permissions are always rwxrwxrwx", "entries", "", entry(func(e map[string]any) { e["permissions"], e["mode"] = "-rwxrwxrwx", 0o777 })},

	{"a watch misses removals", "watches", "", watched(func(e map[string]any) bool { return e["type"] != "EVENT_TYPE_REMOVE" })},
	{"a watch names files by their full path", "watches", "", watched(func(e map[string]any) bool {
		e["name"] = fmt.Sprint("/home/user/", e["name"])
		return true
	})},
	{"a watch of all folders below sees one folder", "watches", "", onAny(without("recursive"), fsystem+"WatchDir", fsystem+"CreateWatcher")},
	{"a watcher is removed and stays", "watches", "", on(fsystem+"RemoveWatcher", say(200, "{}"))},
	{"the watch of no folder succeeds", "watches", "", on(fsystem+"CreateWatcher", becomes(404, 200, `{"watcherId":"w"}`))},
}

// watched keeps the events for which it is true, of streams and of watchers.
func watched(keep func(e map[string]any) bool) hop {
	stream := on(fsystem+"WatchDir", messages(func(m map[string]any) map[string]any {
		e := object(m, "filesystem")
		if e == nil {
			e = object(m, "event", "filesystem")
		}
		if e != nil && !keep(e) {
			return nil
		}
		return m
	}))
	polled := answered(func(m map[string]any) {
		events, _ := m["events"].([]any)
		var kept []any
		for _, e := range events {
			if keep(e.(map[string]any)) {
				kept = append(kept, e)
			}
		}
		m["events"] = kept
	})
	return func(c *call) (*http.Response, error) {
		if c.what() == fsystem+"GetWatcherEvents" {
			return polled(c)
		}
		return stream(c)
	}
}

const (
	download = "envd GET /files"
	upload   = "envd POST /files"
)

// fileFaults are those of what files hold, and of signed URLs.
var fileFaults = []fault{
	{"a download lacks its last byte", "files", "entries pauses signatures snapshots", on(download, whole(func(res *http.Response, text []byte) (int, []byte) {
		if res.StatusCode == http.StatusOK && len(text) > 0 {
			text = text[:len(text)-1]
		}
		return res.StatusCode, text
	}))},
	{"a missing file is an empty one", "files", "entries signatures snapshots", on(download, becomes(404, 200, ""))},
	{"of several files in one call the first is written", "files", "", on(upload, firstPart)},
	{"an upload does not say what it wrote", "files", "signatures", on(upload, becomes(200, 200, "[]"))},
	{"files are root's whoever is asked for", "files", "entries", onAny(query(func(q url.Values) {
		if q.Get("signature") == "" {
			q.Set("username", "root")
		}
	}), download, upload)},

	{"a signature that has expired is accepted", "signatures", "", signed(func(q url.Values, _ string, _ string) bool {
		at, err := strconv.ParseInt(q.Get("signature_expiration"), 10, 64)
		return err == nil && at <= time.Now().Unix()
	})},
	{"a wrong signature is accepted", "signatures", "", signed(func(q url.Values, token, operation string) bool {
		return q.Get("signature") != signature(q, token, "read") && q.Get("signature") != signature(q, token, "write")
	})},
	{"a signature to read is accepted for a write", "signatures", "", signed(func(q url.Values, token, operation string) bool {
		return operation == "write" && q.Get("signature") == signature(q, token, "read")
	})},
	{"no signature and no token are asked for", "files", "signatures", func(c *call) (*http.Response, error) {
		if token, _, _ := c.backend.known(c.Header.Get("E2b-Sandbox-Id")); strings.HasPrefix(c.what(), "envd ") && c.URL.Path == "/files" && !c.URL.Query().Has("signature") {
			c.Header.Set("X-Access-Token", token)
		}
		return c.send()
	}},
}

// firstPart leaves of a form with several files the first one.
func firstPart(c *call) (*http.Response, error) {
	text := c.read()
	_, params, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	if err != nil {
		return c.send()
	}
	part, err := multipart.NewReader(bytes.NewReader(text), params["boundary"]).NextPart()
	if err != nil {
		return c.send()
	}
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	to, err := form.CreatePart(part.Header)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(to, part); err != nil {
		return nil, err
	}
	if err := form.Close(); err != nil {
		return nil, err
	}
	c.Header.Set("Content-Type", form.FormDataContentType())
	c.write(b.Bytes())
	return c.send()
}

// signed lets those requests in by the daemon's token whose signature it is true for.
func signed(accepts func(q url.Values, token, operation string) bool) hop {
	return onAny(func(c *call) (*http.Response, error) {
		q := c.URL.Query()
		token, _, _ := c.backend.known(c.Header.Get("E2b-Sandbox-Id"))
		operation := "read"
		if c.Method == http.MethodPost {
			operation = "write"
		}
		if q.Has("signature") && accepts(q, token, operation) {
			q.Del("signature")
			q.Del("signature_expiration")
			c.URL.RawQuery = q.Encode()
			c.Header.Set("X-Access-Token", token)
		}
		return c.send()
	}, download, upload)
}

// signature is the right one for a query.
func signature(q url.Values, token, operation string) string {
	raw := q.Get("path") + ":" + operation + ":" + q.Get("username") + ":" + token
	if at := q.Get("signature_expiration"); at != "" {
		raw += ":" + at
	}
	sum := sha256.Sum256([]byte(raw))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}
