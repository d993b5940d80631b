package builds

import (
	"slices"
	"strings"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// aliasesOf returns the names of each Ready build of one template, by the build's name. Of
// several builds with a tag the one that got it last has it.
func aliasesOf(builds []v1alpha1.TemplateBuild) map[string][]string {
	holders := map[string]*v1alpha1.TemplateBuild{}
	all := map[string][]string{}
	for i := range builds {
		b := &builds[i]
		if b.Status.Phase != v1alpha1.BuildReady || b.DeletionTimestamp != nil {
			continue
		}
		all[b.Name] = nil
		for _, tag := range b.Status.Tags {
			if holder := holders[tag.Name]; holder == nil || later(b, holder, tag.Name) {
				holders[tag.Name] = b
			}
		}
	}
	for tag, b := range holders {
		all[b.Name] = append(all[b.Name], v1alpha1.TemplateAliases(tag, b.Spec.Name, b.Spec.TemplateID)...)
	}
	for _, names := range all {
		slices.Sort(names)
	}
	return all
}

// later reports whether a got a tag after b.
func later(a, b *v1alpha1.TemplateBuild, tag string) bool {
	at := func(of *v1alpha1.TemplateBuild) v1alpha1.BuildTag {
		i := slices.IndexFunc(of.Status.Tags, func(t v1alpha1.BuildTag) bool { return t.Name == tag })
		return of.Status.Tags[i]
	}
	if c := at(a).At.Compare(at(b).At.Time); c != 0 {
		return c > 0
	}
	return strings.Compare(a.Name, b.Name) > 0
}
