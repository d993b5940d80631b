package referee

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
)

// ofPort is a fault of the requests by a port's host name.
func ofPort(do hop) hop {
	return func(c *call) (*http.Response, error) {
		if port, _ := c.port(); port == "" || port == interpreter {
			return c.send()
		}
		return do(c)
	}
}

const (
	interpreter = "49999"
	execute     = interpreter + " POST /execute"
)

// portFaults are those of ports and of the code interpreter.
var portFaults = []fault{
	{"a closed port is a 200", "ports", "pauses sandboxes snapshots", ofPort(becomes(502, 200, "<html></html>"))},
	{"a port does not get the query", "ports", "", ofPort(query(func(q url.Values) { clear(q) }))},
	{"a private port is open", "ports", "network", ofPort(func(c *call) (*http.Response, error) {
		_, sandbox := c.port()
		if _, traffic, _ := c.backend.known(sandbox); traffic != "" {
			c.Header.Set("E2b-Traffic-Access-Token", traffic)
		}
		return c.send()
	})},
	{"a port does not get the body", "ports", "", ofPort(func(c *call) (*http.Response, error) {
		c.read()
		c.write(nil)
		return c.send()
	})},

	{"errors of code are lost", "interpreter", "", lines(func(m map[string]any) bool { return m["type"] != "error" })},
	{"results have no text", "interpreter", "", lines(func(m map[string]any) bool {
		if m["type"] == "result" {
			delete(m, "text")
		}
		return true
	})},
	{"contexts share their state", "interpreter", "", on(execute, without("context_id"))},
	{"a call's variables are ignored", "interpreter", "", on(execute, without("env_vars"))},
}

// lines keeps those lines of the interpreter for which it is true.
func lines(keep func(m map[string]any) bool) hop {
	return on(execute, whole(func(res *http.Response, text []byte) (int, []byte) {
		var kept bytes.Buffer
		for line := range bytes.Lines(text) {
			var m map[string]any
			if json.Unmarshal(line, &m) != nil {
				kept.Write(line)
				continue
			}
			if keep(m) {
				changed, _ := json.Marshal(m)
				kept.Write(append(changed, '\n'))
			}
		}
		return res.StatusCode, kept.Bytes()
	}))
}
