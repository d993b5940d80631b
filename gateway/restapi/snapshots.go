package restapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
	"github.com/sandlane/sandlane/gateway/restapi/sandboxid"
	"github.com/sandlane/sandlane/routing"
)

// snapshotTimeout bounds a snapshot. SDKs give up after 60 s.
const snapshotTimeout = 50 * time.Second

// What a [Snapshots] says when it refuses, beside what a [Sandboxes] does.
var (
	// ErrNoSnapshot: there is no such snapshot in the caller's namespace.
	ErrNoSnapshot = errors.New("no such snapshot")
	// ErrSnapshotTooLarge: the sandbox's files are more than one snapshot may have.
	// Nothing was kept.
	ErrSnapshotTooLarge = errors.New("the snapshot is too large")
	// ErrSnapshotLimit: as many snapshots of the namespace, or of the API key, are kept as
	// may be. Nothing was made.
	ErrSnapshotLimit = errors.New("the limit of snapshots is reached")
	// ErrSnapshotStoreFull: the store has no room for it. Nothing was kept.
	ErrSnapshotStoreFull = errors.New("the store of snapshots is full")
	// ErrSnapshotting: the sandbox's files are being read already.
	ErrSnapshotting = errors.New("the sandbox is being snapshotted")
)

// Snapshot is what was kept of a sandbox's files.
type Snapshot struct {
	// ID is unique in its namespace; it is of the form of sandbox IDs.
	ID        string
	Names     []string
	SandboxID string
	// Pool is where sandboxes that begin with it get their pods.
	Pool string
	At   time.Time
}

// Snapshots keeps files of sandboxes. Safe for concurrent use. What is of another
// namespace is not found.
type Snapshots interface {
	// Create keeps the files of a sandbox that runs, and returns when they are kept.
	// After an error nothing is.
	Create(ctx context.Context, caller routing.KeyOwner, sandboxID string, names []string) (Snapshot, error)
	// Get returns a snapshot by its ID.
	Get(ctx context.Context, namespace, id string) (Snapshot, error)
	// List returns all snapshots of a namespace, in no order.
	List(ctx context.Context, namespace string) ([]Snapshot, error)
	// Delete deletes a snapshot by its ID: it cannot be had any more when this returns.
	Delete(ctx context.Context, namespace, id string) error
}

// noStore refuses what needs a store for snapshots.
func noStore() *refusal {
	return refuse(http.StatusNotImplemented, "Snapshots, and pauses without the memory, are not supported here: the gateways have no folder for them (--checkpoint-dir).")
}

// CreateSnapshot is POST /sandboxes/{sandboxID}/snapshots.
func (s *Server) CreateSnapshot(w http.ResponseWriter, r *http.Request, _ string) {
	snapshot, err := s.createSnapshot(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusCreated, snapshotView(snapshot))
}

func (s *Server) createSnapshot(r *http.Request) (Snapshot, error) {
	var body api.NewSnapshot
	if err := decode(r, &body); err != nil {
		return Snapshot{}, err
	}
	if is(body.Memory, true) {
		return Snapshot{}, unsupportedField("memory", "a snapshot with the memory is not supported; leave it out or set it to false")
	}
	c := callOf(r)
	var names []string
	if body.Name != nil && *body.Name != "" {
		name, err := s.snapshotName(c.owner, *body.Name)
		if err != nil {
			return Snapshot{}, err
		}
		names = []string{name}
	}
	if s.o.Snapshots == nil {
		// Nor does it say so of a sandbox that the caller cannot see.
		if _, err := s.o.Sandboxes.Get(r.Context(), c.owner.Namespace, c.sandboxID); err != nil {
			return Snapshot{}, err
		}
		return Snapshot{}, noStore()
	}
	ctx, cancel := context.WithTimeout(r.Context(), snapshotTimeout)
	defer cancel()
	return s.o.Snapshots.Create(ctx, c.owner, c.sandboxID, names)
}

// maxSnapshotName bounds a snapshot's name.
const maxSnapshotName = 128

// snapshotName checks the name that a client gives a snapshot.
func (s *Server) snapshotName(caller routing.KeyOwner, text string) (string, error) {
	ref, err := parseReference(text)
	switch {
	case err != nil:
		return "", refuse(http.StatusBadRequest, "name: "+err.Error())
	case len(text) > maxSnapshotName:
		return "", refuse(http.StatusBadRequest, fmt.Sprintf("name: must not have more than %d characters", maxSnapshotName))
	case !ref.ofTeam(caller.Team):
		return "", refuse(http.StatusBadRequest, "name: is of another team")
	}
	if _, taken := s.o.Templates.Template(caller.Namespace, ref.name); taken {
		return "", refuse(http.StatusBadRequest, fmt.Sprintf("name: %q is a template that is no snapshot", ref.name))
	}
	return ref.String(), nil
}

// ListSnapshots is GET /snapshots.
func (s *Server) ListSnapshots(w http.ResponseWriter, r *http.Request, params api.ListSnapshotsParams) {
	page, next, err := s.snapshotPage(r, params)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if next != "" {
		w.Header().Set("X-Next-Token", next)
	}
	views := make([]api.Snapshot, 0, len(page))
	for _, snapshot := range page {
		views = append(views, snapshotView(snapshot))
	}
	writeJSON(w, http.StatusOK, views)
}

func (s *Server) snapshotPage(r *http.Request, params api.ListSnapshotsParams) (page []Snapshot, next string, err error) {
	var after *cursor
	if params.NextToken != nil && *params.NextToken != "" {
		if after, err = parseCursor(*params.NextToken, false); err != nil {
			return nil, "", err
		}
	}
	limit := defaultPage
	if params.Limit != nil {
		limit = *params.Limit
	}
	match, err := snapshotFilter(callOf(r).owner, params)
	if err != nil {
		return nil, "", err
	}
	if s.o.Snapshots == nil {
		return nil, "", noStore()
	}
	all, err := s.o.Snapshots.List(r.Context(), callOf(r).owner.Namespace)
	if err != nil {
		return nil, "", err
	}
	page = slices.DeleteFunc(namesMoved(all), func(one Snapshot) bool {
		return !match(one) || after != nil && newestFirst(one, Snapshot{At: after.started, ID: after.id}) <= 0
	})
	if len(page) > limit {
		page = page[:limit]
		next = cursor{started: page[limit-1].At, id: page[limit-1].ID}.token(false)
	}
	return page, next, nil
}

// newestFirst orders snapshots by their age. Of those of one second the last ID is the
// newest: IDs grow with time.
func newestFirst(a, b Snapshot) int {
	return cmp.Or(b.At.Compare(a.At), strings.Compare(b.ID, a.ID))
}

// namesMoved sorts snapshots, the newest first, and leaves each name to the newest that was
// given it, as E2B moves a name to the last build.
func namesMoved(all []Snapshot) []Snapshot {
	slices.SortFunc(all, newestFirst)
	taken := map[string]bool{}
	for i := range all {
		var names []string
		for _, name := range all[i].Names {
			if !taken[name] {
				names = append(names, name)
			}
			taken[name] = true
		}
		all[i].Names = names
	}
	return all
}

func snapshotFilter(caller routing.KeyOwner, params api.ListSnapshotsParams) (func(Snapshot) bool, error) {
	id, name := "", ""
	if params.SandboxID != nil && *params.SandboxID != "" {
		var ok bool
		if id, ok = sandboxid.Short(*params.SandboxID); !ok {
			return nil, refuse(http.StatusBadRequest, "sandboxID: Invalid sandbox ID")
		}
	}
	if params.Name != nil && *params.Name != "" {
		ref, err := parseReference(*params.Name)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "name: "+err.Error())
		}
		if !ref.ofTeam(caller.Team) {
			return func(Snapshot) bool { return false }, nil
		}
		name = ref.String()
	}
	return func(one Snapshot) bool {
		return (id == "" || one.SandboxID == id) && (name == "" || one.ID == name || slices.Contains(one.Names, name))
	}, nil
}

// DeleteTemplate is DELETE /templates/{templateID}, of snapshots and of templates that were
// built.
func (s *Server) DeleteTemplate(w http.ResponseWriter, r *http.Request, text string) {
	caller := callOf(r).owner
	ref, err := parseReference(text)
	if err != nil {
		s.fail(w, r, invalidReference(err))
		return
	}
	if s.o.Builds != nil && ref.tag == "" && ref.ofTeam(caller.Team) {
		deleted, err := s.o.Builds.Delete(r.Context(), caller, ref.name)
		if deleted || err != nil {
			s.done(w, r, err)
			return
		}
	}
	if _, err := s.templateOf(caller, text); err == nil {
		s.fail(w, r, refuse(http.StatusNotImplemented, "Deleting templates is not supported; a template is a SandboxPool."))
		return
	}
	if s.o.Snapshots == nil {
		s.fail(w, r, noStore())
		return
	}
	found, err := s.snapshotsOf(r.Context(), caller, text)
	for _, one := range slices.Backward(found) { // the newest last: until then the name is its
		if err == nil {
			err = s.o.Snapshots.Delete(r.Context(), caller.Namespace, one.ID)
		}
	}
	s.done(w, r, err)
}

// snapshotsOf finds what a client names: the snapshot of that ID, or all that were given that
// name, the newest first. Only the newest has the name. The others go with it, as builds of one
// template do: if they stayed, the name would be back, and with it older files.
func (s *Server) snapshotsOf(ctx context.Context, caller routing.KeyOwner, text string) ([]Snapshot, error) {
	ref, err := parseReference(text)
	if err != nil || !ref.ofTeam(caller.Team) {
		return nil, ErrNoSnapshot
	}
	if ref.tag == "" && sandboxid.Valid(ref.name) {
		snapshot, err := s.o.Snapshots.Get(ctx, caller.Namespace, ref.name)
		if !errors.Is(err, ErrNoSnapshot) {
			return []Snapshot{snapshot}, err
		}
	}
	all, err := s.o.Snapshots.List(ctx, caller.Namespace)
	if err != nil {
		return nil, err
	}
	name := ref.String()
	all = slices.DeleteFunc(all, func(one Snapshot) bool { return !slices.Contains(one.Names, name) })
	if len(all) == 0 {
		return nil, ErrNoSnapshot
	}
	slices.SortFunc(all, newestFirst)
	return all, nil
}

// beginning finds what a create begins with: a template, or a snapshot and the template
// of its pool.
func (s *Server) beginning(ctx context.Context, caller routing.KeyOwner, text string) (Template, string, error) {
	template, err := s.templateOf(caller, text)
	var refused *refusal
	if err == nil || s.o.Snapshots == nil || !errors.As(err, &refused) || refused.status != http.StatusNotFound {
		return template, "", err
	}
	named, missing := s.snapshotsOf(ctx, caller, text)
	switch {
	case errors.Is(missing, ErrNoSnapshot):
		return Template{}, "", err
	case missing != nil:
		return Template{}, "", missing
	}
	snapshot := named[0]
	template, there := s.o.Templates.OfPool(caller.Namespace, snapshot.Pool)
	if !there {
		return Template{}, "", refuse(http.StatusBadRequest, fmt.Sprintf("templateID: the pool %q of the snapshot is gone", snapshot.Pool))
	}
	return template, snapshot.ID, nil
}

// snapshotView shows a snapshot by its name, if it has one, and by its ID else. E2B has the
// team before the name too; without it the name can be a part of every path.
func snapshotView(s Snapshot) api.Snapshot {
	view := api.Snapshot{SnapshotID: withTag(s.ID), Names: []string{}}
	for _, name := range s.Names {
		view.Names = append(view.Names, withTag(name))
	}
	if len(view.Names) > 0 {
		view.SnapshotID = view.Names[0]
	}
	return view
}
