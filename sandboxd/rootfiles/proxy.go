package rootfiles

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/access"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// onBehalfHeader tells the child on whose behalf a request is, in JSON.
const onBehalfHeader = "Sandlane-On-Behalf"

// onBehalf is on whose behalf a call is.
type onBehalf struct {
	User    users.User
	Workdir string // where relative paths begin; empty means the user's home
}

// proxy passes requests to the filesystem service of the child.
type proxy struct {
	reverse   *httputil.ReverseProxy
	transport *http.Transport
}

func newProxy(c *Client) proxy {
	transport := &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connect(ctx, kindHTTP) },
		DisableCompression:  true, // the two ends agree on that
		MaxIdleConnsPerHost: 4,
	}
	return proxy{transport: transport, reverse: &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // the client is told
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "files"
			for _, secret := range []string{"Authorization", "Cookie", access.TokenHeader} {
				r.Out.Header.Del(secret)
			}
			r.Out.Header[onBehalfHeader] = r.In.Context().Value(onBehalfHeader).([]string)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodeUnavailable, err))
		},
	}}
}

// ServeFilesystem has the child serve a request to the filesystem service.
func (c *Client) ServeFilesystem(w http.ResponseWriter, r *http.Request, u users.User, workdir string) {
	text, err := json.Marshal(onBehalf{u, workdir})
	if err != nil {
		panic(err) // of strings and numbers
	}
	// Without this the server closes the request's body with the first bytes of the answer. If the
	// transport has not seen the end of the body by then, it cuts the answer, as of a watch.
	_ = http.NewResponseController(w).EnableFullDuplex() // an error: HTTP/2, which is so anyway
	//nolint:staticcheck,revive // a key of this package's own
	c.http.reverse.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), onBehalfHeader, []string{string(text)})))
}

func (p proxy) close() { p.transport.CloseIdleConnections() }
