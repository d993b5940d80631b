package sandboxpool

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A pool takes its template's keys, but for Sandlane's own and those by which tools tell
// what is theirs.
func TestMetadataOfTemplates(t *testing.T) {
	kept := map[string]string{}
	for _, key := range []string{
		v1alpha1.LabelEnv, v1alpha1.AnnotationAdopted, "sandlane.dev/anything", "x.sandlane.dev/anything",
		"kubectl.kubernetes.io/last-applied-configuration", "applyset.kubernetes.io/part-of",
		"argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance", "app.kubernetes.io/instance",
		"meta.helm.sh/release-name", "meta.helm.sh/release-namespace", "helm.sh/chart", "app.kubernetes.io/managed-by",
		"kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace", "helm.toolkit.fluxcd.io/name", "resourceset.fluxcd.controlplane.io/name", "fluxcd.io/sync-checksum",
	} {
		kept[key] = "the template's"
	}
	taken := map[string]string{"team": "a", "cost/center": "b", "app.kubernetes.io/name": "c", "notsandlane.dev/x": "d", "kubectl.kubernetes.io/default-container": "e"}
	all := maps.Clone(kept)
	maps.Copy(all, taken)
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Labels: all, Annotations: all}}
	for name, c := range map[string]struct{ had, want map[string]string }{
		"a pool without any":         {nil, taken},
		"another value of a pool":    {map[string]string{"team": "z"}, taken},
		"another key stays":          {map[string]string{"mine": "y"}, with(taken, "mine", "y")},
		"a tracking key of the pool": {map[string]string{"helm.sh/chart": "y", v1alpha1.LabelEnv: "e"}, with(with(taken, "helm.sh/chart", "y"), v1alpha1.LabelEnv, "e")},
	} {
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(c.had), Annotations: maps.Clone(c.had)}}
		if !SyncLabelsFromTemplate(pool, template) || !SyncAnnotationsFromTemplate(pool, template) {
			t.Errorf("%s: nothing is said to change", name)
		}
		if !maps.Equal(pool.Labels, c.want) || !maps.Equal(pool.Annotations, c.want) {
			t.Errorf("%s: labels %v, annotations %v, want %v", name, pool.Labels, pool.Annotations, c.want)
		}
		if SyncLabelsFromTemplate(pool, template) || SyncAnnotationsFromTemplate(pool, template) {
			t.Errorf("%s: a second time is said to change it", name)
		}
	}
	pool := &v1alpha1.SandboxPool{}
	if SyncLabelsFromTemplate(pool, &v1alpha1.SandboxTemplate{}) || pool.Labels != nil {
		t.Error("a template without labels changes the pool")
	}
}

func with(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	m[key] = value
	return m
}
