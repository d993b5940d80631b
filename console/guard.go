package console

import (
	"crypto/subtle"
	"io/fs"
	"net"
	"net/http"
	"strings"
)

// policy lets the page run and load its own files, talk to its own origin, and make no HTML of
// text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// handler is the whole server: the page's files for anyone on this machine, and the rest
// for those who have the token.
func (s *Server) handler(addr net.Addr) http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // a slip in the embed directive
	}
	guarded := http.NewServeMux()
	guarded.HandleFunc("GET /api/overview", s.overview)
	guarded.HandleFunc("GET /api/table/{kind}", s.table)
	guarded.HandleFunc("GET /api/explain/{id}", s.explain)
	guarded.HandleFunc("GET /api/changes", s.changes)
	guarded.HandleFunc("POST /api/sandboxes/{id}/{action}", s.act)
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServerFS(files))
	mux.Handle("/api/", s.withToken(guarded))
	return headers(onlyHost(addr, mux))
}

func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// onlyHost refuses requests for a name that merely leads here.
func onlyHost(addr net.Addr, next http.Handler) http.Handler {
	_, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		panic(err) // the listener is of TCP
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Host {
		case addr.String(), "localhost:" + port, "127.0.0.1:" + port, "[::1]:" + port:
			next.ServeHTTP(w, r)
		default:
			http.Error(w, "this is the console of Sandlane on loopback; open the address that was printed", http.StatusMisdirectedRequest)
		}
	})
}

// withToken asks for the token, and begins to watch with the first request that has it.
func (s *Server) withToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !found || subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
			http.Error(w, "open the address that was printed: it has the token of this run", http.StatusUnauthorized)
			return
		}
		s.bell.listen() // before it begins, since nothing is asked while no page is open
		s.begin.Do(s.run)
		next.ServeHTTP(w, r)
	})
}
