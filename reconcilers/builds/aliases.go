package builds

import (
	"slices"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// aliasesOf returns the names of each Ready build of one template, by the build's name.
func aliasesOf(builds []v1alpha1.TemplateBuild) map[string][]string {
	all := map[string][]string{}
	for i := range builds {
		if b := &builds[i]; b.Status.Phase == v1alpha1.BuildReady && b.DeletionTimestamp == nil {
			all[b.Name] = nil
		}
	}
	for tag, b := range v1alpha1.TagHolders(builds) {
		all[b.Name] = append(all[b.Name], v1alpha1.TemplateAliases(tag, b.Spec.Name, b.Spec.TemplateID)...)
	}
	for _, names := range all {
		slices.Sort(names)
	}
	return all
}
