package restapi

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

// noBuild is the build of every template that was not built here.
const noBuild = "00000000-0000-0000-0000-000000000000"

// ListTemplates is GET /templates.
func (s *Server) ListTemplates(w http.ResponseWriter, r *http.Request, params api.ListTemplatesParams) {
	all, err := s.templatesFor(r, params.TeamID)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	slices.SortFunc(all, func(a, b Template) int { return cmp.Compare(a.ID, b.ID) })
	writeJSON(w, http.StatusOK, templateViews(all))
}

// ListTemplatesV2 is GET /v2/templates: one page.
func (s *Server) ListTemplatesV2(w http.ResponseWriter, r *http.Request, params api.ListTemplatesV2Params) {
	all, err := s.templatesFor(r, params.TeamID)
	var next string
	if err == nil {
		all, next, err = newestPage(all, func(t Template) (time.Time, string) { return t.CreatedAt, t.ID }, params.NextToken, params.Limit)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	setNext(w, next)
	writeJSON(w, http.StatusOK, templateViews(all))
}

func setNext(w http.ResponseWriter, token string) {
	if token != "" {
		w.Header().Set("X-Next-Token", token)
	}
}

// templatesFor returns the caller's templates, in a slice of its own.
func (s *Server) templatesFor(r *http.Request, team *string) ([]Template, error) {
	if team != nil && *team != "" && !strings.EqualFold(*team, callOf(r).owner.Team) {
		return nil, refuse(http.StatusForbidden, "teamID: is not the team of the API key")
	}
	return slices.Clone(s.o.Templates.Templates(callOf(r).owner.Namespace)), nil
}

func templateViews(all []Template) []api.Template {
	views := make([]api.Template, 0, len(all))
	for _, t := range all {
		views = append(views, t.view())
	}
	return views
}

func (t Template) view() api.Template {
	v := api.Template{
		TemplateID: t.ID, BuildID: noBuild, BuildStatus: "ready", EnvdVersion: envdVersion,
		CpuCount: t.CPUCount, MemoryMB: t.MemoryMB, DiskSizeMB: t.DiskMB, Aliases: []string{}, CreatedAt: t.CreatedAt.UTC(), UpdatedAt: t.CreatedAt.UTC(),
	}
	if t.Build == "" {
		v.Aliases = append(v.Aliases, t.Aliases...)
		v.Names = append([]string{t.ID}, v.Aliases...)
		return v
	}
	v.BuildID, v.BuildCount = t.Build, 1+len(t.OtherPools)
	for _, alias := range t.Aliases { // its name is among them, with and without tags
		if name, _, _ := strings.Cut(alias, ":"); name != t.ID && !slices.Contains(v.Aliases, name) {
			v.Aliases = append(v.Aliases, name)
		}
	}
	v.Names = slices.Clone(v.Aliases)
	return v
}

// GetTemplate is GET /templates/{templateID}.
func (s *Server) GetTemplate(w http.ResponseWriter, r *http.Request, text string, params api.GetTemplateParams) {
	view, builds, err := s.described(r, text)
	var next string
	if err == nil {
		builds, next, err = newestPage(builds, func(b Build) (time.Time, string) { return b.CreatedAt, b.ID }, params.NextToken, params.Limit)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	whole := api.TemplateWithBuilds{
		TemplateID: view.TemplateID, BuildID: view.BuildID, BuildStatus: view.BuildStatus, EnvdVersion: view.EnvdVersion, BuildCount: view.BuildCount,
		CpuCount: view.CpuCount, MemoryMB: view.MemoryMB, DiskSizeMB: view.DiskSizeMB, Aliases: view.Aliases, Names: view.Names,
		CreatedAt: view.CreatedAt, UpdatedAt: view.UpdatedAt, Builds: []api.TemplateBuild{},
	}
	for _, b := range builds {
		one := api.TemplateBuild{BuildID: b.ID, Status: b.State, CreatedAt: b.CreatedAt.UTC(), UpdatedAt: b.UpdatedAt.UTC(), CpuCount: b.CPUCount, MemoryMB: b.MemoryMB}
		if !b.FinishedAt.IsZero() {
			one.FinishedAt = new(b.FinishedAt.UTC())
		}
		whole.Builds = append(whole.Builds, one)
	}
	setNext(w, next)
	writeJSON(w, http.StatusOK, whole)
}

// described finds a template of the caller's, and its builds. One whose builds are not ready is
// described by the newest of them.
func (s *Server) described(r *http.Request, text string) (view api.Template, builds []Build, err error) {
	caller := callOf(r).owner
	if builds, err = s.buildsOf(r, text); err != nil {
		return api.Template{}, nil, err
	}
	if len(builds) == 0 {
		t, err := s.templateOf(caller, text)
		return t.view(), nil, err
	}
	newest, oldest := builds[0], builds[len(builds)-1]
	t, found := s.o.Templates.Template(caller.Namespace, newest.TemplateID)
	if !found || t.ID != newest.TemplateID {
		t = Template{ID: newest.TemplateID, CPUCount: newest.CPUCount, MemoryMB: newest.MemoryMB}
	}
	view = t.view()
	view.Aliases, view.Names = []string{newest.Name}, []string{newest.Name}
	view.BuildStatus, view.BuildCount = newest.State, len(builds)
	view.CreatedAt, view.UpdatedAt = oldest.CreatedAt.UTC(), newest.UpdatedAt.UTC()
	return view, builds, nil
}

// buildsOf returns the builds of a template that a client names, the newest first; none if it is
// no template that was built.
func (s *Server) buildsOf(r *http.Request, text string) ([]Build, error) {
	ref, err := parseReference(text)
	if err != nil {
		return nil, invalidReference(err)
	}
	caller := callOf(r).owner
	if s.o.Builds == nil || !ref.ofTeam(caller.Team) {
		return nil, nil
	}
	all, err := s.o.Builds.List(r.Context(), caller, ref.name)
	if errors.Is(err, ErrNoBuild) {
		return nil, nil
	}
	return all, err
}

// UpdateTemplate is PATCH /templates/{templateID}.
func (s *Server) UpdateTemplate(w http.ResponseWriter, r *http.Request, text string) {
	if _, err := s.updated(r, text); err != nil {
		s.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// UpdateTemplateV2 is PATCH /v2/templates/{templateID}.
func (s *Server) UpdateTemplateV2(w http.ResponseWriter, r *http.Request, text string) {
	names, err := s.updated(r, text)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, api.TemplateNames{Names: names})
}

// updated says what a template is called. No update changes one: all are of their team alone.
func (s *Server) updated(r *http.Request, text string) (names []string, err error) {
	var body api.TemplateUpdate
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	view, _, err := s.described(r, text)
	if err != nil {
		return nil, err
	}
	if is(body.Public, true) {
		return nil, unsupportedField("public", "a template is of its team alone")
	}
	return view.Names, nil
}

// ListDefaultTemplates is GET /default-templates.
func (s *Server) ListDefaultTemplates(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, []api.Template{})
}

// ResolveTemplateAlias is GET /templates/aliases/{alias}.
func (s *Server) ResolveTemplateAlias(w http.ResponseWriter, r *http.Request, alias string) {
	t, err := s.templateOf(callOf(r).owner, alias)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, api.TemplateAlias{TemplateID: t.ID})
}

// origin is what sandboxes are made from: an env, or a pool.
type origin struct{ env, pool string }

func originOf(env, pool string) origin {
	if env != "" {
		return origin{env: env}
	}
	return origin{pool: pool}
}

// origins are what the template's sandboxes are made from.
func (t Template) origins() []origin {
	all := []origin{originOf(t.SandboxEnv, t.Pool)}
	if t.Adopted != "" {
		all = append(all, origin{pool: t.Adopted})
	}
	for _, pool := range t.OtherPools {
		all = append(all, origin{pool: pool})
	}
	return all
}

// byOrigin are a namespace's templates by what their sandboxes are made from.
type byOrigin map[origin]Template

func (s *Server) templatesOf(namespace string) byOrigin {
	all := s.o.Templates.Templates(namespace)
	m := make(byOrigin, len(all))
	for _, t := range all {
		for _, from := range t.origins() {
			m[from] = t
		}
	}
	return m
}

// of returns a sandbox's template; while its env or pool is gone, or the pool has become
// an env's, one of its name.
func (m byOrigin) of(sandbox Sandbox) Template {
	from := originOf(sandbox.SandboxEnv, sandbox.Pool)
	if t, found := m[from]; found {
		return t
	}
	return Template{ID: from.env + from.pool, SandboxEnv: from.env, Pool: from.pool}
}
