package referee

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

const (
	create = "POST /sandboxes"
	list   = "GET /sandboxes"
	detail = "GET /sandboxes/*"
)

// all of the REST API, and of nothing else.
func rest(do hop) hop {
	return func(c *call) (*http.Response, error) {
		if port, _ := c.port(); port != "" || strings.HasPrefix(c.what(), "envd ") {
			return c.send()
		}
		return do(c)
	}
}

// sandboxFaults are those of sandboxes and of their lists.
var sandboxFaults = []fault{
	{"a new timeout is answered and not set", "sandboxes", "pauses rest_errors", on("POST /sandboxes/*/timeout", say(204, ""))},
	{"a create's timeout is ignored", "sandboxes", "pauses", on(create, asked(func(_ *call, m map[string]any) {
		if n, _ := m["timeout"].(float64); n > 0 {
			m["timeout"] = 300
		}
	}))},
	{"a create's variables are ignored", "sandboxes", "interpreter pauses processes snapshots", on(create, without("envVars"))},
	{"a sandbox has no metadata", "sandboxes", "", on(detail, answered(func(m map[string]any) { m["metadata"] = map[string]any{} }))},
	{"a kill is answered and not done", "sandboxes", "pauses ports rest_errors signatures snapshots", on("DELETE /sandboxes/*", say(204, ""))},
	{"metrics are always empty", "sandboxes", "", on("GET /sandboxes/*/metrics", becomes(200, 200, "[]"))},
	{"a connect shortens a sandbox's life", "sandboxes", "pauses", on("POST /sandboxes/*/connect", func(c *call) (*http.Response, error) {
		text := c.read()
		res, err := c.send()
		if err != nil || res.StatusCode != http.StatusOK {
			return res, err
		}
		again := c.Clone(c.Context())
		again.URL.Path = strings.TrimSuffix(version.ReplaceAllString(c.URL.Path, "/"), "connect") + "timeout"
		(&call{Request: again}).write(text)
		set, err := c.backend.transport.RoundTrip(again)
		if err != nil {
			return nil, err
		}
		return res, set.Body.Close()
	})},

	{"each page is the first one", "pagination", "rest_errors", on(list, query(func(q url.Values) { q.Del("nextToken") }))},
	{"a page's limit is ignored", "pagination", "rest_errors", on(list, query(func(q url.Values) { q.Del("limit") }))},
	{"the first page is the last one", "pagination", "", on(list, whole(func(res *http.Response, text []byte) (int, []byte) {
		res.Header.Del("X-Next-Token")
		return res.StatusCode, text
	}))},
	{"a filter by metadata is ignored", "pagination", "rest_errors sandboxes", on(list, query(func(q url.Values) { q.Del("metadata") }))},
	{"a filter by state is ignored", "pagination", "pauses rest_errors sandboxes", on(list, query(func(q url.Values) { q.Del("state") }))},

	{"error bodies have no code", "rest_errors", "network pagination pauses sandboxes snapshots templates", rest(whole(func(res *http.Response, text []byte) (int, []byte) {
		var m map[string]any
		if res.StatusCode < 400 || json.Unmarshal(text, &m) != nil {
			return res.StatusCode, text
		}
		delete(m, "code")
		text, _ = json.Marshal(m)
		return res.StatusCode, text
	}))},
	{"an unknown sandbox is a 200", "rest_errors", "pauses sandboxes snapshots", on(detail, becomes(404, 200, "{}"))},
	{"the end of an unknown sandbox is a 204", "rest_errors", "pauses sandboxes", on("DELETE /sandboxes/*", becomes(404, 204, ""))},
	{"any API key is accepted", "rest_errors", "", rest(func(c *call) (*http.Response, error) {
		c.Header.Set("X-Api-Key", c.backend.key)
		return c.send()
	})},
	{"what a client did wrong is a 500", "rest_errors", "network pagination pauses sandboxes snapshots templates", rest(becomes(400, 500, `{"code":500,"message":"Internal error"}`))},
}

// stays answers a resume or connect of a paused sandbox as if it were done.
func stays(c *call) (*http.Response, error) {
	get := c.Clone(c.Context())
	get.Method, get.Body, get.ContentLength = http.MethodGet, http.NoBody, 0
	at := version.ReplaceAllString(c.URL.Path, "/")
	get.URL.Path = at[:strings.LastIndex(at, "/")]
	res, err := c.backend.transport.RoundTrip(get)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	_, err = text.ReadFrom(res.Body)
	_ = res.Body.Close()
	if err != nil || !bytes.Contains(text.Bytes(), []byte(`"state":"paused"`)) {
		return c.send()
	}
	return answer(res, http.StatusCreated, text.Bytes()), nil
}

// stateFaults are those of pauses, snapshots, templates and rules for connections.
var stateFaults = []fault{
	{"a paused sandbox is said to run", "pauses", "pagination snapshots", onAny(answered(func(m map[string]any) { m["state"] = "running" }), list, detail)},
	{"a pause is answered and not done", "pauses", "rest_errors", on("POST /sandboxes/*/pause", say(204, ""))},
	{"a second pause is a 204", "pauses", "rest_errors", on("POST /sandboxes/*/pause", becomes(409, 204, ""))},
	{"a connect does not resume", "pauses", "", onAny(stays, "POST /sandboxes/*/connect", "POST /sandboxes/*/resume")},
	{"a sandbox is ended in place of its pause at the timeout", "pauses", "sandboxes", on(create, without("autoPause", "autoPauseMemory", "autoResume"))},

	{"a snapshot is not deleted", "snapshots", "rest_errors templates", on("DELETE /templates/*", say(204, ""))},
	{"snapshots of all sandboxes are listed", "snapshots", "pagination", on("GET /snapshots", query(func(q url.Values) { q.Del("sandboxID") }))},
	{"a sandbox from a snapshot has none of its files", "snapshots", "", on(create, asked(func(c *call, m map[string]any) {
		id, _ := m["templateID"].(string)
		if _, _, snapshot := c.backend.known(id); snapshot || strings.Contains(id, ":") {
			m["templateID"] = "base"
		}
	}))},
	{"a snapshot's name is ignored", "snapshots", "rest_errors", on("POST /sandboxes/*/snapshots", without("name"))},

	{"an unknown template is the default one", "rest_errors", "snapshots templates", on(create, func(c *call) (*http.Response, error) {
		text := c.read()
		res, err := c.send()
		if err != nil || res.StatusCode != http.StatusNotFound {
			return res, err
		}
		_ = res.Body.Close()
		c.write(text)
		return asked(func(_ *call, m map[string]any) { m["templateID"] = "base" })(c)
	})},
	{"an unknown alias is found", "templates", "", on("GET /templates/aliases/*", becomes(404, 200, `{"templateID":"base","public":false}`))},
	{"no template is listed", "templates", "", on("GET /templates", becomes(200, 200, "[]"))},
	{"what is not supported is a 404 without an object", "templates", "pauses snapshots", rest(becomes(501, 404, ""))},

	{"rules for connections are not shown", "network", "", on(detail, answered(func(m map[string]any) { m["network"] = map[string]any{"allowPublicTraffic": true} }))},
	{"new rules are answered and not set", "network", "rest_errors", on("PUT /sandboxes/*/network", say(204, ""))},
	{"the internet is allowed where it was not", "network", "", on(create, without("allow_internet_access"))},
	{"old rules stay beside new ones", "network", "", on("PUT /sandboxes/*/network", merged)},
}

// merged adds the rules that were there to the new ones.
func merged(c *call) (*http.Response, error) {
	get := c.Clone(c.Context())
	get.Method, get.Body, get.ContentLength = http.MethodGet, http.NoBody, 0
	get.URL.Path = strings.TrimSuffix(c.URL.Path, "/network")
	res, err := c.backend.transport.RoundTrip(get)
	if err != nil {
		return nil, err
	}
	var was struct {
		AllowInternetAccess *bool
		Network             struct{ AllowOut, DenyOut []string }
	}
	err = json.NewDecoder(res.Body).Decode(&was)
	_ = res.Body.Close()
	if err != nil {
		return c.send()
	}
	return asked(func(_ *call, m map[string]any) {
		if m["allowOut"] == nil && len(was.Network.AllowOut) > 0 {
			m["allowOut"] = was.Network.AllowOut
		}
		if m["denyOut"] == nil && len(was.Network.DenyOut) > 0 {
			m["denyOut"] = was.Network.DenyOut
		}
		if m["allow_internet_access"] == nil && was.AllowInternetAccess != nil {
			m["allow_internet_access"] = *was.AllowInternetAccess
		}
	})(c)
}
