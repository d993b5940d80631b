package extproc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// rejection is an answer that does not reach a sandbox. It is built per request
// and not shared.
type rejection struct {
	reason     string // metric label, one of the reasons in metrics.go
	status     int
	message    string
	heading    string // of the page for a browser; empty: the status
	sandboxID  string // empty if the request named none
	path       string // the reserved path, on sandboxd's port
	forms      bool   // show the three forms of a target
	retryAfter time.Duration
	cause      error // for the log: what failed here; nil if the client is to mend it, or to wait
}

// Error makes a rejection an error, so that every step returns one thing.
func (r *rejection) Error() string { return r.message }

// body is E2B's error body (e2b-contract.md 4).
type body struct {
	SandboxID string   `json:"sandboxId,omitempty"`
	Message   string   `json:"message"`
	Path      string   `json:"path,omitempty"`
	Forms     []string `json:"forms,omitempty"`
	Code      int      `json:"code"`
}

const (
	contentJSON = "application/json; charset=utf-8"
	contentHTML = "text/html; charset=utf-8"
)

// render returns the body, as a page for a browser.
func (r *rejection) render(asHTML bool) (content []byte, contentType string) {
	if asHTML {
		return r.page(), contentHTML
	}
	b := body{SandboxID: r.sandboxID, Message: r.message, Path: r.path, Code: r.status}
	if r.forms {
		b.Forms = targetForms[:]
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // <port> in the forms stays readable; the content type is JSON
	if err := enc.Encode(b); err != nil {
		return []byte(`{"message":"` + http.StatusText(r.status) + `","code":` + strconv.Itoa(r.status) + `}`), contentJSON
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), contentJSON
}

func (r *rejection) page() []byte {
	var b strings.Builder
	title := cmp.Or(r.heading, strconv.Itoa(r.status)+" "+http.StatusText(r.status))
	b.WriteString(`<html lang="en"><head><meta charset="utf-8"><title>` + html.EscapeString(title) + "</title></head><body><h1>" +
		html.EscapeString(title) + "</h1>")
	for _, line := range []string{r.message, r.sandboxID, r.path} {
		if line != "" {
			b.WriteString("<p>" + html.EscapeString(line) + "</p>")
		}
	}
	b.WriteString("</body></html>")
	return []byte(b.String())
}

// retryAfterSeconds is the Retry-After header, rounded up; empty for none.
func (r *rejection) retryAfterSeconds() string {
	if r.retryAfter <= 0 {
		return ""
	}
	return strconv.FormatInt(int64((r.retryAfter+time.Second-1)/time.Second), 10)
}

// wantsHTML reports whether a browser shows the answer to a person, by E2B's
// rules.
func wantsHTML(h *Headers) bool {
	switch strings.ToLower(h.FetchMode.Value) {
	case "navigate":
		return true
	case "cors", "no-cors", "same-origin", "websocket":
		return false
	}
	if h.XMLHTTPRequest.Count > 0 {
		return false
	}
	accept := strings.ToLower(h.Accept.Value)
	if strings.Contains(accept, "json") && !strings.Contains(accept, "html") {
		return false
	}
	agent := strings.ToLower(h.UserAgent.Value)
	for _, browser := range [...]string{"mozilla", "chrome", "safari", "firefox", "edge", "opera", "msie"} {
		if strings.Contains(agent, browser) {
			return true
		}
	}
	return false
}
