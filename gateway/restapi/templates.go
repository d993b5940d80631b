package restapi

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

// noBuild is the build of every template: there are none.
const noBuild = "00000000-0000-0000-0000-000000000000"

// ListTemplates is GET /templates.
func (s *Server) ListTemplates(w http.ResponseWriter, r *http.Request, params api.ListTemplatesParams) {
	if team := params.TeamID; team != nil && *team != "" && !strings.EqualFold(*team, callOf(r).owner.Team) {
		s.fail(w, r, refuse(http.StatusForbidden, "teamID: is not the team of the API key"))
		return
	}
	all := slices.Clone(s.o.Templates.Templates(callOf(r).owner.Namespace))
	slices.SortFunc(all, func(a, b Template) int { return cmp.Compare(a.ID, b.ID) })
	views := make([]api.Template, 0, len(all))
	for _, t := range all {
		aliases := t.Aliases
		if aliases == nil {
			aliases = []string{}
		}
		views = append(views, api.Template{
			TemplateID: t.ID, BuildID: noBuild, BuildStatus: "ready", EnvdVersion: envdVersion,
			CpuCount: t.CPUCount, MemoryMB: t.MemoryMB, DiskSizeMB: t.DiskMB,
			Aliases: aliases, Names: append([]string{t.ID}, aliases...),
			CreatedAt: t.CreatedAt.UTC(), UpdatedAt: t.CreatedAt.UTC(),
		})
	}
	writeJSON(w, http.StatusOK, views)
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
