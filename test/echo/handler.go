package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"
)

const (
	// maxSeconds bounds /stream and /sleep.
	maxSeconds = 3600
	// maxBytes bounds /bytes: 16 GiB.
	maxBytes = 16 << 30
)

// identity is what GET / answers.
type identity struct {
	Pod     string      `json:"pod"`
	PodUID  string      `json:"podUID"`
	Process string      `json:"process"` // random, one value per process
	Method  string      `json:"method"`
	Host    string      `json:"host"`
	Path    string      `json:"path"` // with the query, as received
	Headers http.Header `json:"headers"`
}

// newHandler serves
//
//	POST /              the number of bytes received, as JSON {"bytes": n}
//	/ws                 echoes WebSocket messages
//	/stream?seconds=N   a line at once and one a second, for N seconds
//	/sleep?seconds=N    answers after N seconds (fractions are fine)
//	/bytes?n=N          N bytes
//	anything else       an identity
func newHandler(pod, podUID string) http.Handler {
	process := rand.Text()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				return // the client is gone
			}
			_, _ = fmt.Fprintf(w, "{\"bytes\":%d,\"process\":%q}\n", n, process)
			return
		}
		_ = json.NewEncoder(w).Encode(identity{
			Pod: pod, PodUID: podUID, Process: process,
			Method: r.Method, Host: r.Host, Path: r.RequestURI, Headers: r.Header,
		})
	})
	mux.HandleFunc("/ws", echoWebSocket)
	mux.HandleFunc("/stream", stream)
	mux.HandleFunc("/sleep", sleep)
	mux.HandleFunc("GET /bytes", download)
	return mux
}

func echoWebSocket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return // Accept has answered
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(64 << 20)
	for {
		kind, message, err := c.Read(r.Context())
		if err != nil {
			return
		}
		if err := c.Write(r.Context(), kind, message); err != nil {
			return
		}
	}
}

func stream(w http.ResponseWriter, r *http.Request) {
	d, ok := seconds(w, r)
	if !ok {
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := http.NewResponseController(w)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	end := time.NewTimer(d)
	defer end.Stop()
	for line := 0; ; line++ {
		if _, err := fmt.Fprintf(w, "line %d\n", line); err != nil {
			return
		}
		if out.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func sleep(w http.ResponseWriter, r *http.Request) {
	d, ok := seconds(w, r)
	if !ok {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		_, _ = fmt.Fprintf(w, "slept %s\n", d)
	case <-r.Context().Done():
	}
}

func seconds(w http.ResponseWriter, r *http.Request) (time.Duration, bool) {
	n, err := strconv.ParseFloat(r.URL.Query().Get("seconds"), 64)
	if err != nil || !(n >= 0 && n <= maxSeconds) {
		http.Error(w, fmt.Sprintf("seconds must be a number from 0 to %d", maxSeconds), http.StatusBadRequest)
		return 0, false
	}
	return time.Duration(n * float64(time.Second)), true
}

func download(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
	if err != nil || n < 0 || n > maxBytes {
		http.Error(w, fmt.Sprintf("n must be a number from 0 to %d", int64(maxBytes)), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	_, _ = io.CopyN(w, pattern{}, n)
}

// pattern is an endless repetition of the same bytes.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "sandlane"[i%8]
	}
	return len(p), nil
}
