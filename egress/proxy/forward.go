package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"

	"github.com/sandlane/sandlane/egress/names"
	"github.com/sandlane/sandlane/egress/record"
	"github.com/sandlane/sandlane/egress/upstream"
)

// forwarded are headers that Go's reverse proxy takes off, and that are the client's own.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// refusal is what a client is told instead of an answer.
type refusal struct {
	code    int
	verdict string
	message string
}

// setKey is the context's key of the headers that a request gets.
type setKey struct{}

// newForwarder judges requests and forwards those that may pass.
func (s *Server) newForwarder() http.Handler {
	forwarder := &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: ownUpstream{}, FlushInterval: -1, BufferPool: &buffers{},
		ErrorLog: log.New(io.Discard, "", 0), // it has what clients and upstreams sent
		ModifyResponse: func(answer *http.Response) error {
			// What came behind the request for an upgrade was not looked at.
			if answer.StatusCode != http.StatusSwitchingProtocols && upgrades(answer.Request) {
				answer.Header.Set("Connection", "close")
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, in *http.Request, err error) {
			r := in.Context().Value(requestsKey{}).(*requests)
			refused := refusal{http.StatusBadGateway, verdictFailed, "egress: no connection to the host"}
			if errors.Is(err, upstream.ErrClosed) {
				refused = refusal{http.StatusBadGateway, verdictClosed, "egress: the host has no address that sandboxes may reach"}
			}
			s.refuseRequest(w, in, r.hostNow(), refused)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		r := in.Context().Value(requestsKey{}).(*requests)
		if !r.begin() {
			panic(http.ErrAbortHandler)
		}
		defer r.end()
		r.link.note(func(of *record.Record) { of.Requests++ })
		host, set, refused := r.judge(in)
		if refused != nil {
			s.refuseRequest(w, in, host, *refused)
			return
		}
		s.o.Metrics.requests.WithLabelValues(verdictPassed).Inc()
		if in.ProtoMajor == 1 {
			// Else the HTTP server takes what is left of the body once the answer begins.
			if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
				panic(http.ErrAbortHandler)
			}
		}
		forwarder.ServeHTTP(w, in.WithContext(context.WithValue(in.Context(), setKey{}, set)))
	})
}

// judge decides about a request; set are the headers that it gets.
func (r *requests) judge(in *http.Request) (host string, set map[string]string, refused *refusal) {
	host, err := names.Host(withoutPort(in.Host, r.port))
	switch {
	case err != nil:
		return in.Host, nil, &refusal{http.StatusBadRequest, verdictUnread, "egress: a request needs a host's name"}
	case !r.isFor(host) || !sameHosts(in, host, r.port):
		return host, nil, &refusal{http.StatusMisdirectedRequest, verdictDenied, "egress: the connection was made for another host"}
	case in.Method == http.MethodConnect || in.Method == http.MethodTrace:
		return host, nil, &refusal{http.StatusMethodNotAllowed, verdictDenied, "egress: this method is not passed on"}
	}
	decision := r.use.Judge(host)
	if !decision.Allowed {
		return host, nil, &refusal{http.StatusForbidden, verdictDenied, "egress: the sandbox may not connect to this host"}
	}
	if r.scheme != "https" {
		return host, nil, nil
	}
	if decision.Rule == nil { // not any more; its connections are being closed
		return host, nil, &refusal{http.StatusMisdirectedRequest, verdictDenied, "egress: the rules of the host have changed"}
	}
	set, err = r.fill(decision.Rule)
	if err != nil {
		return host, nil, &refusal{http.StatusBadGateway, verdictFailed, "egress: " + err.Error()}
	}
	return host, set, nil
}

// fill returns a rule's headers with their secrets. Its errors are for the sandbox.
func (r *requests) fill(rule *names.Rule) (map[string]string, error) {
	claim := r.use.Claim()
	if claim == nil {
		return nil, errors.New("the sandbox is over")
	}
	set := make(map[string]string, len(rule.Headers))
	for name, template := range rule.Headers {
		value, err := template.Fill(func(secret string) (string, error) {
			return r.s.o.Reveal(claim.Namespace, secret)
		})
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		set[name] = value
	}
	return set, nil
}

// withoutPort takes off the port that a host has anyway.
func withoutPort(host string, port uint16) string {
	return strings.TrimSuffix(host, fmt.Sprint(":", port))
}

// sameHosts reports whether all that a request says of its host is that host: with HTTP/2
// it may have a header Host beside :authority.
func sameHosts(in *http.Request, host string, port uint16) bool {
	for _, text := range in.Header.Values("Host") {
		if name, err := names.Host(withoutPort(text, port)); err != nil || name != host {
			return false
		}
	}
	return true
}

// rewrite makes the request that goes on. Hop-by-hop headers are gone already, so what the
// client's Connection named takes none of the rule's away.
func rewrite(p *httputil.ProxyRequest) {
	r := p.In.Context().Value(requestsKey{}).(*requests)
	p.Out.URL.Scheme, p.Out.URL.Host = r.scheme, r.hostNow()
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	p.Out.Host = p.In.Host
	p.Out.Trailer = nil
	p.Out.Header.Del("Host")
	for _, name := range forwarded {
		if values, there := p.In.Header[name]; there && !httpguts.HeaderValuesContainsToken(p.In.Header["Connection"], name) {
			p.Out.Header[name] = values
		}
	}
	set, _ := p.In.Context().Value(setKey{}).(map[string]string)
	for name, value := range set {
		p.Out.Header[name] = []string{value}
	}
}

func upgrades(r *http.Request) bool {
	return httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade")
}

// ownUpstream sends each request by the connections of the sandbox's connection.
type ownUpstream struct{}

// RoundTrip implements http.RoundTripper.
func (ownUpstream) RoundTrip(out *http.Request) (*http.Response, error) {
	r := out.Context().Value(requestsKey{}).(*requests)
	if upgrades(out) {
		return r.upgrading.RoundTrip(out)
	}
	return r.upstream.RoundTrip(out)
}

// refuseRequest answers with JSON that names the host, and lets the connection end: what
// comes behind a refused request is not read.
func (s *Server) refuseRequest(w http.ResponseWriter, in *http.Request, host string, r refusal) {
	s.o.Metrics.requests.WithLabelValues(r.verdict).Inc()
	in.Context().Value(requestsKey{}).(*requests).link.note(func(of *record.Record) {
		of.Refused++
		of.Verdict = r.verdict
		if of.Host == "" {
			of.Host = host
		}
	})
	body, err := json.Marshal(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Host    string `json:"host"`
	}{r.code, r.message, host})
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if in.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.code)
	_, _ = w.Write(append(body, '\n'))
}

// buffers are those that bodies are copied with.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, bufferSize)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
