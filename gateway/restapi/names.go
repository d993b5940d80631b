package restapi

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/sandlane/sandlane/routing"
)

// reference is what a client writes for a template, "[team/]name[:tag]", taken apart as
// E2B does: case and blanks around a part do not count.
type reference struct {
	team string // empty if none was named
	name string
	tag  string // empty for none, and for "default", which every template has
}

var (
	// namePattern allows dots beside what E2B does: pools may have them.
	namePattern = regexp.MustCompile(`^[a-z0-9_.-]+$`)
	tagPattern  = regexp.MustCompile(`^[a-z0-9_.-]+$`)
)

// String is the name and the tag, which are what tells templates of a team apart.
func (ref reference) String() string {
	if ref.tag == "" {
		return ref.name
	}
	return ref.name + ":" + ref.tag
}

const defaultTag = "default"

// withTag is an ID or a name as E2B shows those of snapshots, always with a tag.
func withTag(name string) string {
	if strings.Contains(name, ":") {
		return name
	}
	return name + ":" + defaultTag
}

func parseReference(text string) (reference, error) {
	identifier, tag, tagged := strings.Cut(text, ":")
	team, name, inTeam := strings.Cut(identifier, "/")
	if !inTeam {
		team, name = "", identifier
	}
	var ref reference
	for _, part := range []struct {
		into       *string
		what, text string
		pattern    *regexp.Regexp
		given      bool
	}{
		{&ref.tag, "tag", tag, tagPattern, tagged},
		{&ref.team, "namespace", team, namePattern, inTeam},
		{&ref.name, "template ID", name, namePattern, true},
	} {
		if !part.given {
			continue
		}
		*part.into = strings.ToLower(strings.TrimSpace(part.text))
		if !part.pattern.MatchString(*part.into) {
			return reference{}, fmt.Errorf("invalid %s: %s", part.what, part.text)
		}
	}
	if ref.tag == defaultTag {
		ref.tag = ""
	}
	return ref, nil
}

// ofTeam reports whether a template of that reference may be the team's: it names no
// other.
func (ref reference) ofTeam(team string) bool {
	return ref.team == "" || strings.EqualFold(ref.team, team)
}

func invalidReference(err error) *refusal {
	return refuse(http.StatusBadRequest, "Invalid template reference: "+err.Error())
}

// templateOf finds the template that a client of a team names. One with a tag is found
// if an alias has the tag in it: pools have no tags of their own.
func (s *Server) templateOf(caller routing.KeyOwner, text string) (Template, error) {
	ref, err := parseReference(text)
	if err != nil {
		return Template{}, invalidReference(err)
	}
	if ref.ofTeam(caller.Team) {
		if ref.tag != "" {
			if t, found := s.o.Templates.Template(caller.Namespace, ref.name+":"+ref.tag); found {
				return t, nil
			}
		}
		if t, found := s.o.Templates.Template(caller.Namespace, ref.name); found {
			if ref.tag != "" {
				return Template{}, refuse(http.StatusNotFound, fmt.Sprintf("tag '%s' does not exist for template '%s'", ref.tag, ref.name))
			}
			return t, nil
		}
	}
	return Template{}, refuse(http.StatusNotFound, fmt.Sprintf("Template %q doesn't exist or you don't have access to it", text))
}

// originFilter returns the envs and pools whose sandboxes a list's template names, and the
// snapshot whose ID that may be. They may be gone, and an empty origin says that there can be
// none.
func (s *Server) originFilter(caller routing.KeyOwner, text string) (from []origin, snapshot string, err error) {
	if strings.Contains(text, ":") {
		err = errors.New("tags are not supported here because sandboxes are not tag-scoped")
	}
	var ref reference
	if err == nil {
		ref, err = parseReference(text)
	}
	if err != nil {
		return nil, "", refuse(http.StatusBadRequest, "Invalid template: "+err.Error())
	}
	if !ref.ofTeam(caller.Team) {
		return []origin{{}}, "", nil
	}
	if t, found := s.o.Templates.Template(caller.Namespace, ref.name); found {
		return t.origins(), "", nil
	}
	return []origin{{pool: ref.name}}, ref.name, nil
}
