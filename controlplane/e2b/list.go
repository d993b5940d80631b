package e2b

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/sandlane/sandlane/controlplane/e2b/api"
)

const defaultPage = 100

// ListSandboxes is GET /sandboxes: everything at once.
func (s *Server) ListSandboxes(w http.ResponseWriter, r *http.Request, params api.ListSandboxesParams) {
	f, err := newFilter(params.Metadata)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	all, templates, err := s.filtered(r, f)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	sortSandboxes(all, false)
	writeJSON(w, http.StatusOK, listedViews(all, templates))
}

// ListSandboxesV2 is GET /v2/sandboxes: one page.
func (s *Server) ListSandboxesV2(w http.ResponseWriter, r *http.Request, params api.ListSandboxesV2Params) {
	if err := s.listPage(w, r, params); err != nil {
		s.fail(w, r, err)
	}
}

func (s *Server) listPage(w http.ResponseWriter, r *http.Request, params api.ListSandboxesV2Params) error {
	f, err := newFilter(params.Metadata)
	if err != nil {
		return err
	}
	f.startedAfter, f.template = params.StartedAfter, params.Template
	ascending := params.Order != nil && *params.Order == api.Asc
	var after *cursor
	if params.NextToken != nil && *params.NextToken != "" {
		if after, err = parseCursor(*params.NextToken, ascending); err != nil {
			return err
		}
	}
	limit := defaultPage
	if params.Limit != nil {
		limit = *params.Limit
	}
	all, templates, err := s.filtered(r, f)
	if err != nil {
		return err
	}
	w.Header().Set("X-Total-Running", strconv.Itoa(len(all)))
	if params.State != nil && !slices.Contains(*params.State, api.Running) {
		all = nil // No sandbox is paused.
	}
	sortSandboxes(all, ascending)
	page := all[after.position(all, ascending):]
	if len(page) > limit {
		page = page[:limit]
		w.Header().Set("X-Next-Token", cursorOf(page[limit-1], ascending))
	}
	writeJSON(w, http.StatusOK, listedViews(page, templates))
	return nil
}

// filtered returns the caller's sandboxes that a filter leaves, in a slice of its own.
func (s *Server) filtered(r *http.Request, f *filter) ([]Sandbox, byPool, error) {
	namespace := callOf(r).identity.Namespace
	all, err := s.o.Sandboxes.List(r.Context(), namespace)
	if err != nil {
		return nil, nil, err
	}
	templates := s.templatesOf(namespace)
	var left []Sandbox
	for _, sandbox := range all {
		if f.matches(sandbox, templates) {
			left = append(left, sandbox)
		}
	}
	return left, templates, nil
}

func listedViews(all []Sandbox, templates byPool) []api.ListedSandbox {
	views := make([]api.ListedSandbox, 0, len(all))
	for _, sandbox := range all {
		views = append(views, listedView(sandbox, templates.of(sandbox)))
	}
	return views
}
