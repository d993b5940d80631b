package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// envdPort is the port of a sandbox's daemon.
const envdPort = 49983

// mostAnswer bounds the body of an answer.
const mostAnswer = 64 << 20

// ask sends a step's request. The answer of a stream that is kept has its rest.
func (r *running) ask(ctx context.Context, s Step) (*answer, error) {
	if s.Finish != "" {
		a := r.kept[s.Finish]
		if a == nil || a.rest == nil {
			return nil, fmt.Errorf("no stream %s is open", s.Finish)
		}
		defer context.AfterFunc(ctx, func() { _ = a.rest.body.Close() })()
		return a, a.readAll(false)
	}
	req, err := r.request(ctx, s)
	if err != nil {
		return nil, err
	}
	res, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	a := &answer{status: res.StatusCode, header: res.Header}
	if s.Stream != "" && strings.HasPrefix(res.Header.Get("Content-Type"), "application/connect+json") {
		a.rest = &stream{body: res.Body, in: bufio.NewReader(res.Body)}
		err := a.readAll(s.Keep != "")
		if s.Keep == "" && a.rest != nil {
			_ = a.rest.body.Close()
		}
		if s.Keep != "" {
			r.kept[s.Keep] = a
		}
		return a, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, mostAnswer))
	a.text = string(text)
	if (s.RPC != "" || s.Stream != "") && a.status >= 300 {
		a.failure = a.body()
		if code, _ := at(a.failure, "code"); !isText(code) {
			a.failure = map[string]any{"code": codeOf[a.status], "message": a.text}
		}
	}
	return a, err
}

func (r *running) request(ctx context.Context, s Step) (*http.Request, error) {
	body, contentType, err := s.payload(r.vars)
	if err != nil {
		return nil, err
	}
	var base, method, at, host string
	header := http.Header{}
	switch {
	case s.REST != "":
		base, header = r.o.URL, http.Header{"X-Api-Key": {r.o.Key}}
		method, at, _ = strings.Cut(s.REST, " ")
	case s.Port != "":
		var port string
		base = r.o.SandboxURL
		port, at, _ = strings.Cut(s.Port, " ")
		method, at, _ = strings.Cut(at, " ")
		host = fmt.Sprintf("%s-%v.%v", port, r.vars["id"], r.vars["domain"])
	default:
		base, method = r.o.SandboxURL, http.MethodPost
		header.Set("E2b-Sandbox-Id", fmt.Sprint(r.vars["id"]))
		header.Set("E2b-Sandbox-Port", strconv.Itoa(envdPort))
		header.Set("X-Access-Token", fmt.Sprint(r.vars["token"]))
		user := s.User
		if user == "" {
			user = "user"
		}
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
		if at = "/" + s.RPC + s.Stream; s.Envd != "" {
			method, at, _ = strings.Cut(s.Envd, " ")
		} else {
			header.Set("Connect-Protocol-Version", "1")
		}
	}
	at, _ = filled(at, r.vars).(string)
	if s.Sign != nil {
		header.Del("X-Access-Token")
		at += s.Sign.query(fmt.Sprint(r.vars["token"]), time.Now())
	}
	req, err := http.NewRequestWithContext(ctx, method, base+at, body)
	if err != nil {
		return nil, err
	}
	req.Header, req.Host = header, host
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for name, value := range s.Headers {
		value, _ = filled(value, r.vars).(string)
		if req.Header.Set(name, value); value == "" {
			req.Header.Del(name)
		}
	}
	return req, nil
}

// payload is the step's body and its type.
func (s Step) payload(vars map[string]any) (io.Reader, string, error) {
	switch {
	case s.File != nil:
		var b bytes.Buffer
		form := multipart.NewWriter(&b)
		part, err := form.CreateFormFile("file", "file")
		if err == nil {
			_, err = io.WriteString(part, *s.File)
		}
		if err == nil {
			err = form.Close()
		}
		return &b, form.FormDataContentType(), err
	case s.Raw != nil:
		return strings.NewReader(*s.Raw), "application/json", nil
	case s.Body == nil && s.RPC == "" && s.Stream == "":
		return http.NoBody, "", nil
	}
	body := filled(s.Body, vars)
	if body == nil {
		body = map[string]any{}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, "", err
	}
	if s.Stream == "" {
		return bytes.NewReader(text), "application/json", nil
	}
	head := make([]byte, 5, 5+len(text))
	binary.BigEndian.PutUint32(head[1:], uint32(len(text))) //nolint:gosec // a case's body is short
	return bytes.NewReader(append(head, text...)), "application/connect+json", nil
}

func isText(v any) bool {
	_, ok := v.(string)
	return ok
}

// codeOf is the Connect code that SDKs read from the status of an error that is none of
// Connect's (e2b/envd/client_shared.py).
var codeOf = map[int]string{
	400: "invalid_argument", 401: "unauthenticated", 403: "permission_denied", 404: "not_found", 409: "already_exists",
	413: "resource_exhausted", 429: "resource_exhausted", 500: "internal", 501: "unimplemented", 502: "unavailable", 503: "unavailable", 504: "deadline_exceeded",
}

// query is the signature as E2B's SDKs make it (e2b/sandbox/signature.py).
func (s Signature) query(token string, now time.Time) string {
	raw := s.Path + ":" + s.Operation + ":" + s.User + ":" + token
	more := ""
	if s.Expires != 0 {
		at := strconv.FormatInt(now.Unix()+int64(s.Expires), 10)
		raw, more = raw+":"+at, "&signature_expiration="+at
	}
	sum := sha256.Sum256([]byte(raw))
	return "&signature=" + url.QueryEscape("v1_"+base64.RawStdEncoding.EncodeToString(sum[:])) + more
}
