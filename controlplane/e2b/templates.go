package e2b

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/sandlane/sandlane/controlplane/e2b/api"
)

// noBuild is the build of every template: there are none.
const noBuild = "00000000-0000-0000-0000-000000000000"

// ListTemplates is GET /templates.
func (s *Server) ListTemplates(w http.ResponseWriter, r *http.Request) {
	all := slices.Clone(s.o.Templates.Templates(callOf(r).identity.Namespace))
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

// ResolveTemplateAlias is GET /templates/aliases/{alias}.
func (s *Server) ResolveTemplateAlias(w http.ResponseWriter, r *http.Request, alias string) {
	t, err := s.templateOf(callOf(r).identity, alias)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, api.TemplateAlias{TemplateID: t.ID})
}

// byPool are a namespace's templates by pool.
type byPool map[string]Template

func (s *Server) templatesOf(namespace string) byPool {
	all := s.o.Templates.Templates(namespace)
	m := make(byPool, len(all))
	for _, t := range all {
		m[t.Pool] = t
	}
	return m
}

// of returns a sandbox's template; while its pool is gone, one of the pool's name.
func (m byPool) of(sandbox Sandbox) Template {
	if t, found := m[sandbox.Pool]; found {
		return t
	}
	return Template{ID: sandbox.Pool, Pool: sandbox.Pool}
}
