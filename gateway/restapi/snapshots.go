package restapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
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
	Create(ctx context.Context, caller KeyOwner, sandboxID string, names []string) (Snapshot, error)
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
		return Snapshot{}, refuse(http.StatusBadRequest, "memory: a snapshot with the memory is not supported; leave it out or set it to false")
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
func (s *Server) snapshotName(caller KeyOwner, text string) (string, error) {
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
	page = slices.DeleteFunc(all, func(one Snapshot) bool {
		return !match(one) || after != nil && compare(one.At, one.ID, after.started, after.id, false) <= 0
	})
	slices.SortFunc(page, func(a, b Snapshot) int { return compare(a.At, a.ID, b.At, b.ID, false) })
	if len(page) > limit {
		page = page[:limit]
		next = cursor{started: page[limit-1].At, id: page[limit-1].ID}.token(false)
	}
	return page, next, nil
}

func snapshotFilter(caller KeyOwner, params api.ListSnapshotsParams) (func(Snapshot) bool, error) {
	id, name := "", ""
	if params.SandboxID != nil && *params.SandboxID != "" {
		var ok bool
		if id, ok = shortID(*params.SandboxID); !ok {
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
		return (id == "" || one.SandboxID == id) && (name == "" || slices.Contains(one.Names, name))
	}, nil
}

// DeleteTemplate is DELETE /templates/{templateID}, of snapshots alone.
func (s *Server) DeleteTemplate(w http.ResponseWriter, r *http.Request, text string) {
	caller := callOf(r).owner
	if _, err := parseReference(text); err != nil {
		s.fail(w, r, invalidReference(err))
		return
	}
	if _, err := s.templateOf(caller, text); err == nil {
		s.fail(w, r, refuse(http.StatusNotImplemented, "Deleting templates is not supported; a template is a SandboxPool."))
		return
	}
	if s.o.Snapshots == nil {
		s.fail(w, r, noStore())
		return
	}
	snapshot, err := s.snapshotOf(r.Context(), caller, text)
	if err == nil {
		err = s.o.Snapshots.Delete(r.Context(), caller.Namespace, snapshot.ID)
	}
	s.done(w, r, err)
}

// snapshotOf finds the snapshot that a client names, by its ID or its name; of several of
// one name the newest.
func (s *Server) snapshotOf(ctx context.Context, caller KeyOwner, text string) (Snapshot, error) {
	ref, err := parseReference(text)
	if err != nil || !ref.ofTeam(caller.Team) {
		return Snapshot{}, ErrNoSnapshot
	}
	if ref.tag == "" && idPattern.MatchString(ref.name) {
		snapshot, err := s.o.Snapshots.Get(ctx, caller.Namespace, ref.name)
		if !errors.Is(err, ErrNoSnapshot) {
			return snapshot, err
		}
	}
	all, err := s.o.Snapshots.List(ctx, caller.Namespace)
	if err != nil {
		return Snapshot{}, err
	}
	name := ref.String()
	all = slices.DeleteFunc(all, func(one Snapshot) bool { return !slices.Contains(one.Names, name) })
	if len(all) == 0 {
		return Snapshot{}, ErrNoSnapshot
	}
	return slices.MinFunc(all, func(a, b Snapshot) int { return compare(a.At, a.ID, b.At, b.ID, false) }), nil
}

// beginning finds what a create begins with: a template, or a snapshot and the template
// of its pool.
func (s *Server) beginning(ctx context.Context, caller KeyOwner, text string) (Template, string, error) {
	template, err := s.templateOf(caller, text)
	var refused *refusal
	if err == nil || s.o.Snapshots == nil || !errors.As(err, &refused) || refused.status != http.StatusNotFound {
		return template, "", err
	}
	snapshot, found := s.snapshotOf(ctx, caller, text)
	switch {
	case errors.Is(found, ErrNoSnapshot):
		return Template{}, "", err
	case found != nil:
		return Template{}, "", found
	}
	template, there := s.o.Templates.OfPool(caller.Namespace, snapshot.Pool)
	if !there {
		return Template{}, "", refuse(http.StatusBadRequest, fmt.Sprintf("templateID: the pool %q of the snapshot is gone", snapshot.Pool))
	}
	return template, snapshot.ID, nil
}

func snapshotView(s Snapshot) api.Snapshot {
	names := s.Names
	if names == nil {
		names = []string{}
	}
	return api.Snapshot{SnapshotID: s.ID, Names: names}
}
