package restapi

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

const defaultPage = 100

// ListSandboxes is GET /sandboxes: all that run, at once. As E2B's it has no paused ones:
// its clients are older than pauses.
func (s *Server) ListSandboxes(w http.ResponseWriter, r *http.Request, params api.ListSandboxesParams) {
	f, err := newFilter(params.Metadata)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	f.states = []api.SandboxState{api.Running}
	found, err := s.filtered(r, f, "")
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, listedViews(found.Sandboxes, s.templatesOf(callOf(r).owner.Namespace)))
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
	f.startedAfter = params.StartedAfter
	if params.State != nil {
		f.states = *params.State
	}
	if params.Template != nil && *params.Template != "" {
		if f.from, f.snapshot, err = s.originFilter(callOf(r).owner, *params.Template); err != nil {
			return err
		}
	}
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
	version := ""
	if after != nil {
		version = after.version
	}
	found, err := s.filtered(r, f, version)
	if err != nil {
		return err
	}
	page, more := pageOf(found.Sandboxes, after, limit, ascending)
	if ascending && !more && found.Kept {
		// The newest are on this page, and a list that was kept may lack them.
		if found, err = s.filtered(r, f, ""); err != nil {
			return err
		}
		page, more = pageOf(found.Sandboxes, after, limit, ascending)
	}
	if f.states == nil || slices.Contains(f.states, api.Running) {
		w.Header().Set("X-Total-Running", strconv.Itoa(running(found.Sandboxes)))
	}
	if more {
		last := page[len(page)-1]
		w.Header().Set("X-Next-Token", cursor{last.StartedAt, last.ID, found.Version}.token(ascending))
	}
	writeJSON(w, http.StatusOK, listedViews(page, s.templatesOf(callOf(r).owner.Namespace)))
	return nil
}

// running counts the sandboxes that are not paused.
func running(all []Sandbox) (n int) {
	for i := range all {
		if !all[i].Paused {
			n++
		}
	}
	return n
}

// pageOf returns at most limit sandboxes from after the cursor on, and whether more
// follow. It may change the order of all.
func pageOf(all []Sandbox, after *cursor, limit int, ascending bool) (page []Sandbox, more bool) {
	sortSandboxes(all, ascending)
	page = all[after.position(all, ascending):]
	if len(page) > limit {
		return page[:limit], true
	}
	return page, false
}

// filtered returns the caller's sandboxes that a filter leaves, in a slice of its own.
func (s *Server) filtered(r *http.Request, f *filter, atLeast string) (Listing, error) {
	found, err := s.o.Sandboxes.List(r.Context(), callOf(r).owner.Namespace, atLeast)
	if err != nil {
		return Listing{}, err
	}
	left := make([]Sandbox, 0, len(found.Sandboxes))
	for _, sandbox := range found.Sandboxes {
		if f.matches(sandbox) {
			left = append(left, sandbox)
		}
	}
	found.Sandboxes = left
	return found, nil
}

func listedViews(all []Sandbox, templates byOrigin) []api.ListedSandbox {
	views := make([]api.ListedSandbox, 0, len(all))
	for _, sandbox := range all {
		views = append(views, listedView(sandbox, templates.of(sandbox)))
	}
	return views
}
