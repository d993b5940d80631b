package restapi

import (
	"net/http"
	"slices"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

// logPage is how many entries of a build's log one answer has at most; SDKs ask again until they
// get none.
const logPage = 100

// build returns a build of the caller's.
func (s *Server) build(r *http.Request, templateID, buildID string) (Build, error) {
	builds, err := s.builds()
	if err != nil {
		return Build{}, err
	}
	return builds.Get(r.Context(), callOf(r).owner, templateID, buildID)
}

// GetTemplateBuildStatus is GET /templates/{templateID}/builds/{buildID}/status.
func (s *Server) GetTemplateBuildStatus(w http.ResponseWriter, r *http.Request, templateID, buildID string, params api.GetTemplateBuildStatusParams) {
	build, err := s.build(r, templateID, buildID)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	log := atLeast(build.Log, (*string)(params.Level))
	offset, limit := 0, logPage
	if params.LogsOffset != nil {
		offset = *params.LogsOffset
	}
	if params.Limit != nil {
		limit = *params.Limit
	}
	page := log[min(offset, len(log)):]
	view := api.TemplateBuildInfo{
		TemplateID: build.TemplateID, BuildID: build.ID, Status: build.State, Logs: []string{}, LogEntries: logViews(page[:min(limit, len(page))]),
	}
	if build.State == "error" {
		view.Reason = &api.BuildReason{Message: build.Reason, LogEntries: new(logViews(ofStep(build.Log, build.Step)))}
		if build.Step != "" {
			view.Reason.Step = &build.Step
		}
	}
	writeJSON(w, http.StatusOK, view)
}

// GetTemplateBuildLogs is GET /templates/{templateID}/builds/{buildID}/logs.
func (s *Server) GetTemplateBuildLogs(w http.ResponseWriter, r *http.Request, templateID, buildID string, params api.GetTemplateBuildLogsParams) {
	build, err := s.build(r, templateID, buildID)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	backward := params.Direction != nil && *params.Direction == api.GetTemplateBuildLogsParamsDirectionBackward
	log := slices.DeleteFunc(atLeast(slices.Clone(build.Log), (*string)(params.Level)), func(e BuildLogEntry) bool {
		if params.Cursor == nil {
			return false
		}
		at := time.UnixMilli(*params.Cursor)
		return backward && e.At.After(at) || !backward && e.At.Before(at)
	})
	if backward {
		slices.Reverse(log)
	}
	limit := logPage
	if params.Limit != nil {
		limit = *params.Limit
	}
	writeJSON(w, http.StatusOK, api.TemplateBuildLogs{Logs: logViews(log[:min(limit, len(log))])})
}

// levels of a log, from the least.
var levels = []string{"debug", "info", "warn", "error"}

func atLeast(log []BuildLogEntry, level *string) []BuildLogEntry {
	if level == nil {
		return log
	}
	least := slices.Index(levels, *level)
	return slices.DeleteFunc(slices.Clone(log), func(e BuildLogEntry) bool { return slices.Index(levels, e.Level) < least })
}

// reasonEntries is how many of a step's last lines stand beside the reason of its failure.
const reasonEntries = 20

func ofStep(log []BuildLogEntry, step string) []BuildLogEntry {
	log = slices.DeleteFunc(slices.Clone(log), func(e BuildLogEntry) bool { return e.Step != step })
	return log[max(0, len(log)-reasonEntries):]
}

func logViews(log []BuildLogEntry) []api.BuildLogEntry {
	views := make([]api.BuildLogEntry, 0, len(log))
	for _, e := range log {
		view := api.BuildLogEntry{Timestamp: e.At.UTC(), Level: e.Level, Message: e.Text}
		if e.Step != "" {
			view.Step = &e.Step
		}
		views = append(views, view)
	}
	return views
}
