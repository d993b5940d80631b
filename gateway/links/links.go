// Package links answers the links that open a port of a sandbox in a browser: it takes a ticket
// for a cookie, and leads to the port without the ticket (package credentials has the states).
// [Handler] stands before the REST API's server, which package gateway makes.
package links

import (
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/extproc"
	"github.com/sandlane/sandlane/gateway/restapi/requestid"
)

// Handler answers links and passes all else on. Safe for concurrent use. No log has a ticket.
type Handler struct {
	// Tokens takes a ticket for the cookie of a port.
	Tokens *credentials.Tokens
	Next   http.Handler
	Log    *slog.Logger
}

// ServeHTTP implements http.Handler.
func (l *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != extproc.LinkPath {
		l.Next.ServeHTTP(w, r)
		return
	}
	h := w.Header()
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	one := func(value string) extproc.Field { return extproc.Field{Value: value, Count: 1} }
	target, err := extproc.ParseTarget(&extproc.Headers{Authority: one(r.Host), Path: one(r.URL.RequestURI())})
	if err != nil || target.Form != extproc.FormHost {
		page(w, http.StatusNotFound, "This host is no port of a sandbox.", "")
		return
	}
	if r.Method != http.MethodGet {
		h.Set("Allow", http.MethodGet)
		page(w, http.StatusMethodNotAllowed, "A link is opened by GET.", "")
		return
	}
	cookie, err := l.Tokens.UseTicket(r.Context(), target.ID, target.Port, r.URL.Query().Get("ticket"), time.Now())
	switch {
	case errors.Is(err, credentials.ErrLink):
		page(w, http.StatusForbidden, "This link was used, is over, or leads elsewhere. Make a new one.", "")
		return
	case err != nil:
		l.Log.Error("a link to a port could not be used", "request", requestid.Of(r), "sandbox", target.ID, "port", target.Port, "err", err)
		h.Set("Retry-After", "1")
		page(w, http.StatusServiceUnavailable, "The sandbox gateway could not answer. Try the link again in a moment.", "")
		return
	}
	l.Log.Info("a port was opened in a browser", "sandbox", target.ID, "port", target.Port)
	set := &http.Cookie{Name: extproc.PortCookie, Value: cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if r.Header.Get("X-Forwarded-Proto") == "https" {
		set.Name, set.Secure = extproc.SecurePrefix+set.Name, true
	}
	http.SetCookie(w, set)
	if !v1alpha1.GeneratedID(target.ID) {
		// An earlier sandbox of the name had the same origin. What its pages cached and stored would
		// be part of this one's.
		h.Set("Clear-Site-Data", `"cache", "storage"`)
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		// What a redirect leads to would still be a request of the other site, which ExtProc refuses.
		page(w, http.StatusOK, "The port is opening.", `<meta http-equiv="refresh" content="0; url=/">`)
	default:
		http.Redirect(w, r, "/", http.StatusSeeOther)
	}
}

// page answers with a line of text. head is HTML.
func page(w http.ResponseWriter, status int, text, head string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	// The client may be gone: an error of the write is of no use to anything.
	_, _ = fmt.Fprintf(w, `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Sandlane</title>%s</head><body><p>%s</p></body></html>`, head, html.EscapeString(text))
}
