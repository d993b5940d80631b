package extproc

import (
	"log/slog"
	"net/http"
	"strings"

	dataaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"golang.org/x/time/rate"
)

// Every error that Envoy answers, its own ones and this server's, has a header X-Request-ID,
// and its record in the access log the same ID: package envoy makes both. This server does
// not get the client's ID with the request, since each hit would pay for that.
const (
	// HeaderRequestID names the request that an error answers.
	HeaderRequestID = "x-request-id"
	// MaxRequestID is the length of the longest ID that is taken from a client.
	MaxRequestID = 128
)

const (
	// detailsPrefix begins the details of this server's answers; the reason follows.
	detailsPrefix = "sandlane_"
	// rejectionsPerSecond is how many errors of one reason are logged: clients cause them.
	rejectionsPerSecond = 10
)

// newRejectionLogs limits the lines of each reason by itself, so that one that a client
// causes in numbers leaves room for the others; "" is for what Envoy answers by itself.
func newRejectionLogs() map[string]*rate.Limiter {
	m := map[string]*rate.Limiter{"": rate.NewLimiter(rejectionsPerSecond, rejectionsPerSecond)}
	for _, reason := range reasons {
		m[reason] = rate.NewLimiter(rejectionsPerSecond, rejectionsPerSecond)
	}
	return m
}

// logRejection leaves a line for an error that Envoy answered. What a pod or the REST API
// answered has none here.
func (s *Server) logRejection(e *dataaccesslogv3.HTTPAccessLogEntry) {
	details, p := e.GetResponse().GetResponseCodeDetails(), e.GetCommonProperties()
	id := p.GetCustomTags()[HeaderRequestID]
	status := int(e.GetResponse().GetResponseCode().GetValue())
	if id == "" || status < http.StatusBadRequest || details == "via_upstream" || strings.Contains(details, "after_response_started") {
		return // a client that leaves a stream of a pod has its details, too
	}
	fields := p.GetMetadata().GetFilterMetadata()[MetadataNamespace].GetFields()
	sandbox := fields[MetadataSandboxID].GetStringValue() // of a request that was sent to a pod
	reason, ours := strings.CutPrefix(details, detailsPrefix)
	limit := s.rejectionLogs[""]
	if l := s.rejectionLogs[reason]; ours && l != nil {
		limit, sandbox = l, fields[MetadataFinal].GetStringValue()
	}
	if !limit.Allow() {
		return
	}
	attrs := []any{
		slog.String("request", id), slog.Int("status", status),
		slog.String("reason", reason), slog.String("sandbox", sandbox),
	}
	if cause := fields[metadataCause].GetStringValue(); cause != "" {
		attrs = append(attrs, slog.String("err", cause))
	}
	s.o.Log.Warn("A request was answered with an error", attrs...)
}
