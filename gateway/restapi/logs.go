package restapi

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

// maxLines is how many of a sandbox's last lines are looked at.
const maxLines = 1000

// GetSandboxLogs is GET /sandboxes/{sandboxID}/logs.
func (s *Server) GetSandboxLogs(w http.ResponseWriter, r *http.Request, _ string, params api.GetSandboxLogsParams) {
	lines, err := s.lines(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if params.Start != nil {
		start := time.UnixMilli(*params.Start)
		lines = slices.DeleteFunc(lines, func(l LogLine) bool { return l.At.Before(start) })
	}
	if n := limitOf(params.Limit); len(lines) > n {
		// Without a start the last lines are of interest.
		if params.Start == nil {
			lines = lines[len(lines)-n:]
		}
		lines = lines[:n]
	}
	views := api.SandboxLogs{Logs: []api.SandboxLog{}, LogEntries: logEntries(lines)}
	for _, l := range lines {
		views.Logs = append(views.Logs, api.SandboxLog{Timestamp: l.At.UTC(), Line: structured(l.Text)})
	}
	writeJSON(w, http.StatusOK, views)
}

// structured is a line as E2B's command-line client reads it: JSON, whose logger is one of
// those that it shows by default.
func structured(text string) string {
	return strings.TrimSpace(string(encode(map[string]string{"level": string(api.LogLevelInfo), "logger": "process", "message": text})))
}

// GetSandboxLogsV2 is GET /v2/sandboxes/{sandboxID}/logs.
func (s *Server) GetSandboxLogsV2(w http.ResponseWriter, r *http.Request, _ string, params api.GetSandboxLogsV2Params) {
	lines, err := s.lines(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	backward := params.Direction != nil && *params.Direction == api.GetSandboxLogsV2ParamsDirectionBackward
	lines = slices.DeleteFunc(lines, func(l LogLine) bool {
		if params.Search != nil && !strings.Contains(l.Text, *params.Search) {
			return true
		}
		if params.Cursor == nil {
			return false
		}
		at := time.UnixMilli(*params.Cursor)
		return backward && l.At.After(at) || !backward && l.At.Before(at)
	})
	if params.Level != nil && (*params.Level == api.LogLevelWarn || *params.Level == api.LogLevelError) {
		lines = nil // All lines are info.
	}
	if backward {
		slices.Reverse(lines)
	}
	if n := limitOf(params.Limit); len(lines) > n {
		lines = lines[:n]
	}
	writeJSON(w, http.StatusOK, api.SandboxLogsV2{Logs: logEntries(lines)})
}

// lines returns the last lines in a slice of the caller's own.
func (s *Server) lines(r *http.Request) ([]LogLine, error) {
	c := callOf(r)
	lines, err := s.o.Sandboxes.Logs(r.Context(), c.owner.Namespace, c.sandboxID, maxLines)
	return slices.Clone(lines), err
}

func limitOf(limit *int) int {
	if limit == nil {
		return maxLines
	}
	return *limit
}

func logEntries(lines []LogLine) []api.SandboxLogEntry {
	views := make([]api.SandboxLogEntry, 0, len(lines))
	for _, l := range lines {
		views = append(views, api.SandboxLogEntry{
			Timestamp: l.At.UTC(), Level: api.LogLevelInfo, Message: l.Text, Fields: map[string]string{},
		})
	}
	return views
}
