package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
)

const (
	// TokenHeader carries the access token.
	TokenHeader = "X-Access-Token"

	corsMaxAge = "7200"
)

// Error answers a request with E2B's form of an error.
func Error(w http.ResponseWriter, code int, message string) {
	h := w.Header()
	h.Del("Content-Length")
	h.Del("Content-Encoding")
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "message": message})
}

// Envs serves GET /envs.
func (s *State) Envs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(s.Env())
}

// Guard passes allowed requests on to next and refuses the others, with CORS headers on all
// answers.
func (s *State) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		if r.Method == http.MethodOptions {
			preflight(w, r)
			return
		}
		h.Set("Access-Control-Expose-Headers", "*")
		if refusal := s.refusal(r); refusal != "" {
			Error(w, http.StatusUnauthorized, refusal)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func preflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	headers := r.Header.Get("Access-Control-Request-Headers")
	if headers == "" {
		headers = "*"
	}
	h.Set("Access-Control-Allow-Headers", headers)
	h.Set("Access-Control-Max-Age", corsMaxAge)
	h.Add("Vary", "Access-Control-Request-Headers")
	w.WriteHeader(http.StatusNoContent)
}

// refusal returns the message for a request that is not allowed, in E2B's words where E2B
// has such a message; empty if the request is allowed.
func (s *State) refusal(r *http.Request) string {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if r.URL.Path == "/health" && reads || r.URL.Path == "/init" && (reads || r.Method == http.MethodPost) {
		return ""
	}
	if r.URL.Path == "/init" && r.Method == http.MethodPut {
		return "" // its handler checks a signature
	}
	if r.Method == http.MethodPost {
		switch r.URL.Path {
		case "/freeze", "/unfreeze", "/archive", "/restore":
			return "" // their handlers check a signature
		}
	}
	token, answers := s.token()
	if !answers {
		return "unauthorized access, the sandbox is not initialised"
	}
	if token == "" || same(r.Header.Get(TokenHeader), token) {
		return ""
	}
	if r.URL.Path == "/files" {
		switch {
		case !reads && r.Method != http.MethodPost:
		case r.Header.Get(TokenHeader) != "":
			return "access token present in header but does not match"
		case reads:
			return s.signatureRefusal(r.URL.Query(), "read", token)
		default:
			return s.signatureRefusal(r.URL.Query(), "write", token)
		}
	}
	return "unauthorized access, please provide a valid access token or method signing if supported"
}

// signatureRefusal is refusal for a file URL with a signature, as the SDKs make it.
func (s *State) signatureRefusal(query url.Values, operation, token string) string {
	given := query.Get("signature")
	if given == "" {
		return "missing signature query parameter"
	}
	expiration := query.Get("signature_expiration")
	if !same(given, signature(query.Get("path"), operation, query.Get("username"), token, expiration)) {
		return "invalid signature"
	}
	if expiration == "" {
		return ""
	}
	at, err := strconv.ParseInt(expiration, 10, 64)
	if err != nil {
		return "invalid signature expiration"
	}
	if s.options.Now().Unix() > at {
		return "signature is already expired"
	}
	return ""
}

// signature returns version 1 of E2B's signatures; expiration may be empty.
func signature(path, operation, user, token, expiration string) string {
	text := path + ":" + operation + ":" + user + ":" + token
	if expiration != "" {
		text += ":" + expiration
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// same compares two texts in constant time.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
