package extproc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/pages"
)

func TestWantsHTML(t *testing.T) {
	const browser = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"
	tests := []struct {
		name    string
		headers []string
		want    bool
	}{
		{"nothing", nil, false},
		{"curl", []string{"user-agent", "curl/8.0", "accept", "*/*"}, false},
		{"browser", []string{"user-agent", browser, "accept", "text/html,*/*"}, true},
		{"browser in capitals", []string{"user-agent", "OPERA"}, true},
		{"browser asking for JSON", []string{"user-agent", browser, "accept", "application/json"}, false},
		{"browser taking both", []string{"user-agent", browser, "accept", "text/html, application/json"}, true},
		{"fetch", []string{"user-agent", browser, "sec-fetch-mode", "cors"}, false},
		{"no-cors", []string{"user-agent", browser, "sec-fetch-mode", "no-cors"}, false},
		{"same-origin", []string{"user-agent", browser, "sec-fetch-mode", "same-origin"}, false},
		{"WebSocket", []string{"user-agent", browser, "sec-fetch-mode", "websocket"}, false},
		{"XMLHttpRequest", []string{"user-agent", browser, "x-requested-with", "XMLHttpRequest"}, false},
		{"navigation", []string{"user-agent", "curl", "accept", "application/json", "sec-fetch-mode", "navigate"}, true},
		{"E2B JS SDK", []string{"user-agent", "e2b-js-sdk/2.51.0", "sec-fetch-mode", "cors"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := wantsHTML(request(tt.headers...)); got != tt.want {
				t.Errorf("wantsHTML = %v", got)
			}
		})
	}
}

func TestRejectionBodies(t *testing.T) {
	r := rejectNotFound()
	r.sandboxID = "hello"
	content, contentType := r.render(false)
	if got, want := string(content), `{"sandboxId":"hello","message":"The sandbox was not found","code":502}`; got != want {
		t.Errorf("JSON %s, want %s", got, want)
	}
	if contentType != "application/json; charset=utf-8" {
		t.Errorf("content type %q", contentType)
	}
	r = &rejection{status: http.StatusBadRequest, message: `<script>"x"</script>`}
	content, contentType = r.render(true)
	page := string(content)
	if !strings.HasPrefix(page, "<html") || !strings.HasSuffix(page, "</html>") || strings.Contains(page, "<script") {
		t.Errorf("page %s", page)
	}
	if contentType != "text/html; charset=utf-8" {
		t.Errorf("content type %q", contentType)
	}
}

// Pages for people have E2B's headings where E2B has some.
func TestPageHeadings(t *testing.T) {
	for heading, r := range map[string]*rejection{
		"Sandbox Not Found":            rejectNotFound(),
		"Missing Traffic Access Token": rejectTraffic(Field{}),
		"Invalid Traffic Access Token": rejectTraffic(Field{Value: "x", Count: 1}),
		"401 Unauthorized":             rejectBadKey(),
	} {
		r.sandboxID = "hello"
		content, _ := r.render(true)
		for _, want := range []string{"<title>" + heading + "</title>", "<h1>" + heading + "</h1>", "<p>hello</p>"} {
			if !strings.Contains(string(content), want) {
				t.Errorf("no %s in %s", want, content)
			}
		}
	}
}

type later struct{ error }

func (later) RetryAfter() time.Duration { return 2500 * time.Millisecond }

func (l later) Unwrap() error { return l.error }

func TestErrorsToAnswers(t *testing.T) {
	tests := []struct {
		err        error
		status     int
		reason     string
		retryAfter string
	}{
		{errHost, 400, reasonBadTarget, ""},
		{ErrNoTarget, 404, reasonNoTarget, ""},
		{routing.ErrNotFound, 502, reasonNotFound, ""},
		{routing.ErrPoolNotFound, 404, reasonPoolNotFound, ""},
		{routing.ErrNoMember, 503, reasonNoCapacity, "1"},
		{ErrForbidden, 403, reasonForbidden, ""},
		{routing.ErrBadKey, 401, reasonBadKey, ""},
		{&routing.InvalidError{Reason: "spec.pool: too long"}, 400, reasonInvalid, ""},
		{routing.ErrNotPermitted, 500, reasonNotPermitted, ""},
		{later{routing.ErrNotPermitted}, 500, reasonNotPermitted, ""},
		{ErrTransitioning, 409, reasonTransitioning, ""},
		{routing.ErrSandboxLimit, 429, reasonSandboxLimit, "1"},
		{later{routing.ErrSandboxLimit}, 429, reasonSandboxLimit, "3"},
		{routing.ErrNoCapacity, 503, reasonNoCapacity, "1"},
		{later{routing.ErrNoCapacity}, 503, reasonNoCapacity, "3"},
		{later{&routing.NoStartError{Reason: "ErrImagePull"}}, 503, reasonNoCapacity, "3"},
		{routing.ErrLimited, 503, reasonLimited, "1"},
		{routing.ErrParkingFull, 503, reasonParkingFull, "1"},
		{routing.ErrNamespaceParking, 429, reasonNamespaceParking, "1"},
		{routing.ErrKeylessParking, 429, reasonKeylessParking, "1"},
		{routing.ErrNameParking, 429, reasonNameParking, "1"},
		{ErrNamespaceOpen, 429, reasonNamespaceOpen, "1"},
		{routing.ErrNotRestorable, 503, reasonNotRestorable, "1"},
		{routing.ErrDraining, 503, reasonDraining, "1"},
		{errNoLease, 503, reasonNoLease, "1"},
		{context.DeadlineExceeded, 503, reasonDeadline, "1"},
		{errors.New("boom"), 503, reasonInternal, "1"},
		{routing.ErrExists, 503, reasonInternal, "1"},
	}
	for _, tt := range tests {
		r := rejectionOf(fmt.Errorf("doing something: %w", tt.err))
		if r.status != tt.status || r.reason != tt.reason || r.retryAfterSeconds() != tt.retryAfter {
			t.Errorf("%v: %d %s Retry-After %q; want %d %s %q", tt.err, r.status, r.reason, r.retryAfterSeconds(), tt.status, tt.reason, tt.retryAfter)
		}
		if strings.Contains(r.message, "boom") {
			t.Errorf("an internal error reaches the client: %q", r.message)
		}
		if exempt := []int{400, 500, 502}; !slices.Contains(exempt, tt.status) && !strings.Contains(r.message, ". ") {
			t.Errorf("%v: %q says what is wrong, and not what to do", tt.err, r.message)
		}
	}
}

// A request that gets no pod is answered as docs/design/no-pod.md says.
func TestAnswersOfActivationsAsDocumented(t *testing.T) {
	errs := map[string]error{
		"ErrNoCapacity": routing.ErrNoCapacity, "ErrUnavailable": fmt.Errorf("%w: %w", routing.ErrUnavailable, context.DeadlineExceeded), "ErrInvalid": &routing.InvalidError{Reason: "x"},
		"ErrNotPermitted": routing.ErrNotPermitted, "ErrSandboxLimit": routing.ErrSandboxLimit, "ErrPoolNotFound": routing.ErrPoolNotFound,
		"ErrNoMember": routing.ErrNoMember, "ErrDraining": routing.ErrDraining, "ErrNotReady": context.DeadlineExceeded, "ErrEnded": routing.ErrEnded,
		"ErrUnusable": routing.ErrUnusable, "NoStartError": &routing.NoStartError{Reason: "ErrImagePull"}, "ErrNotRestorable": routing.ErrNotRestorable,
	}
	for _, row := range pages.NoPod(t) {
		if row["a request's answer"] == pages.None {
			continue // resolved anew
		}
		err := errs[row["error"]]
		if err == nil {
			t.Fatalf("no-pod.md names an error that is not known here: %v", row)
		}
		r := rejectionOf(fmt.Errorf("activate: %w", err))
		if got := fmt.Sprint(r.status, " ", r.reason); got != row["a request's answer"] {
			t.Errorf("%s: %s, want %s", row["why"], got, row["a request's answer"])
		}
	}
}
