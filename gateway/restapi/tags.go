package restapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

const (
	maxTag = 64
	// tagTimeout bounds a change of tags, which returns when this gateway knows of it.
	tagTimeout = 20 * time.Second

	defaultTagGroups, defaultGroupAssignments, defaultAssignments = 25, 6, 50
)

// normalTag is a tag as it is kept.
func normalTag(text string) (string, error) {
	tag := strings.ToLower(strings.TrimSpace(text))
	if !tagPattern.MatchString(tag) || len(tag) > maxTag {
		return "", refuse(http.StatusBadRequest, "tags: invalid tag")
	}
	return tag, nil
}

// withTags adds tags that a client names to tags, each once.
func withTags(tags, named []string) ([]string, error) {
	for _, text := range named {
		tag, err := normalTag(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags, nil
}

// AssignTemplateTags is POST /templates/tags.
func (s *Server) AssignTemplateTags(w http.ResponseWriter, r *http.Request) {
	answer, err := s.assignTags(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusCreated, answer)
}

func (s *Server) assignTags(r *http.Request) (answer api.AssignedTemplateTags, err error) {
	builds, err := s.builds()
	if err != nil {
		return answer, err
	}
	var body api.TemplateTagsAssignment
	if err := decode(r, &body); err != nil {
		return answer, err
	}
	name, from, err := s.built(r, body.Target)
	if err != nil {
		return answer, err
	}
	if answer.Tags, err = withTags(nil, body.Tags); err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), tagTimeout)
	defer cancel()
	answer.BuildID, err = builds.Assign(ctx, callOf(r).owner, name, from, answer.Tags)
	return answer, err
}

// RemoveTemplateTags is DELETE /templates/tags.
func (s *Server) RemoveTemplateTags(w http.ResponseWriter, r *http.Request) {
	s.done(w, r, s.removeTags(r))
}

func (s *Server) removeTags(r *http.Request) error {
	builds, err := s.builds()
	if err != nil {
		return err
	}
	var body api.TemplateTagsRemoval
	if err := decode(r, &body); err != nil {
		return err
	}
	name, _, err := s.built(r, body.Name)
	if err != nil {
		return err
	}
	tags, err := withTags(nil, body.Tags)
	if err != nil {
		return err
	}
	if slices.Contains(tags, defaultTag) {
		return refuse(http.StatusBadRequest, `tags: "default" cannot be removed`)
	}
	ctx, cancel := context.WithTimeout(r.Context(), tagTimeout)
	defer cancel()
	return builds.Remove(ctx, callOf(r).owner, name, tags)
}

// built returns name and tag of a template that a client names for a change of tags: the tags of
// a SandboxPool that was not built here are its annotation's.
func (s *Server) built(r *http.Request, text string) (name, tag string, err error) {
	ref, err := parseReference(text)
	if err != nil {
		return "", "", invalidReference(err)
	}
	caller := callOf(r).owner
	if !ref.ofTeam(caller.Team) {
		return "", "", ErrNoBuild
	}
	if t, found := s.o.Templates.Template(caller.Namespace, ref.name); found && t.Build == "" {
		return "", "", unsupportedField("tags", "the template is a SandboxPool that was not built here")
	}
	return ref.name, cmp.Or(ref.tag, defaultTag), nil
}

// ListTemplateTags is GET /templates/{templateID}/tags.
func (s *Server) ListTemplateTags(w http.ResponseWriter, r *http.Request, templateID string) {
	groups, err := s.tagsOf(r, templateID)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	views := make([]api.TemplateTag, 0, len(groups))
	for _, g := range groups {
		views = append(views, api.TemplateTag{Tag: g.tag, BuildID: g.all[0].BuildId, CreatedAt: g.all[0].AssignedAt})
	}
	writeJSON(w, http.StatusOK, views)
}

// CountTemplateTags is GET /templates/{templateID}/tags/count.
func (s *Server) CountTemplateTags(w http.ResponseWriter, r *http.Request, templateID string) {
	groups, err := s.tagsOf(r, templateID)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, api.TemplateTagsCount{Total: len(groups)})
}

// ExistsTemplateTag is GET /templates/{templateID}/tags/exists.
func (s *Server) ExistsTemplateTag(w http.ResponseWriter, r *http.Request, templateID string, params api.ExistsTemplateTagParams) {
	tag, err := normalTag(params.Tag)
	var groups []tagGroup
	if err == nil {
		groups, err = s.tagsOf(r, templateID)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	exists := slices.ContainsFunc(groups, func(g tagGroup) bool { return g.tag == tag })
	writeJSON(w, http.StatusOK, api.TemplateTagExists{Exists: exists, NormalizedTag: tag})
}

// ListTemplateTagGroups is GET /templates/{templateID}/tags/groups.
func (s *Server) ListTemplateTagGroups(w http.ResponseWriter, r *http.Request, templateID string, params api.ListTemplateTagGroupsParams) {
	groups, err := s.tagsOf(r, templateID)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if params.Search != nil {
		search := strings.ToLower(*params.Search)
		groups = slices.DeleteFunc(groups, func(g tagGroup) bool { return !strings.Contains(g.tag, search) })
	}
	if params.Sort != nil {
		if *params.Sort == api.NameAsc || *params.Sort == api.NameDesc {
			slices.SortFunc(groups, func(a, b tagGroup) int { return cmp.Compare(a.tag, b.tag) })
		}
		if *params.Sort == api.NameDesc || *params.Sort == api.LatestAsc {
			slices.Reverse(groups)
		}
	}
	page, next := after(groups, func(g tagGroup) string { return g.tag }, params.TagsCursor, params.TagsLimit, defaultTagGroups)
	views := api.TemplateTagGroups{Tags: []api.TemplateTagGroup{}, NextCursor: next}
	for _, g := range page {
		some, more := after(g.all, func(a api.TemplateTagAssignment) string { return a.AssignmentId }, nil, params.AssignmentLimit, defaultGroupAssignments)
		views.Tags = append(views.Tags, api.TemplateTagGroup{Tag: g.tag, Assignments: some, HasMore: more != nil})
	}
	writeJSON(w, http.StatusOK, views)
}

// ListTemplateTagAssignments is GET /templates/{templateID}/tags/{tag}/assignments.
func (s *Server) ListTemplateTagAssignments(w http.ResponseWriter, r *http.Request, templateID, text string, params api.ListTemplateTagAssignmentsParams) {
	tag, err := normalTag(text)
	var groups []tagGroup
	if err == nil {
		groups, err = s.tagsOf(r, templateID)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	all := []api.TemplateTagAssignment{}
	for _, g := range groups {
		if g.tag == tag {
			all = g.all
		}
	}
	page, next := after(all, func(a api.TemplateTagAssignment) string { return a.AssignmentId }, params.Cursor, params.Limit, defaultAssignments)
	writeJSON(w, http.StatusOK, api.TemplateTagAssignments{Data: page, NextCursor: next})
}

// after returns what stands behind a cursor, the key of the last of the page before, and the cursor
// of the next page; nil: there is none. Behind a key that is gone is nothing.
func after[T any](all []T, key func(T) string, cursor *string, limit *int, most int) (page []T, next *string) {
	if cursor != nil && *cursor != "" {
		at := slices.IndexFunc(all, func(one T) bool { return key(one) == *cursor })
		if at < 0 {
			at = len(all) - 1
		}
		all = all[at+1:]
	}
	if limit != nil {
		most = *limit
	}
	if len(all) <= most {
		return all, nil
	}
	last := key(all[most-1])
	return all[:most], &last
}

// tagGroup is a tag that a template has, and the builds that it was assigned to, that which has it
// first.
type tagGroup struct {
	tag string
	all []api.TemplateTagAssignment
}

// tagsOf returns the tags of a template of the caller's, those that were assigned last first. One
// that was not built has none.
func (s *Server) tagsOf(r *http.Request, text string) ([]tagGroup, error) {
	builds, err := s.buildsOf(r, text)
	if err == nil && len(builds) == 0 {
		_, err = s.templateOf(callOf(r).owner, text)
	}
	if err != nil {
		return nil, err
	}
	var groups []tagGroup
	for _, b := range builds {
		for _, tag := range b.Assigned {
			at := slices.IndexFunc(groups, func(g tagGroup) bool { return g.tag == tag.Tag })
			if at < 0 {
				at, groups = len(groups), append(groups, tagGroup{tag: tag.Tag})
			}
			one := api.TemplateTagAssignment{
				AssignmentId: uuid.NewSHA1(uuid.NameSpaceOID, []byte(b.ID+"/"+tag.Tag)).String(),
				BuildId:      b.ID, AssignedAt: tag.At.UTC(), BuildCreatedAt: b.CreatedAt.UTC(),
			}
			if !b.FinishedAt.IsZero() {
				one.BuildFinishedAt = new(b.FinishedAt.UTC())
			}
			groups[at].all = append(groups[at].all, one)
		}
	}
	for _, g := range groups {
		slices.SortFunc(g.all, func(a, b api.TemplateTagAssignment) int {
			return cmp.Or(b.AssignedAt.Compare(a.AssignedAt), cmp.Compare(b.BuildId, a.BuildId)) // as v1alpha1.TagHolders
		})
	}
	slices.SortFunc(groups, func(a, b tagGroup) int {
		return cmp.Or(b.all[0].AssignedAt.Compare(a.all[0].AssignedAt), cmp.Compare(a.tag, b.tag))
	})
	return groups, nil
}
