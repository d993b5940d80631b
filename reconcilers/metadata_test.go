package reconcilers_test

import (
	"sync/atomic"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// The labels and annotations of a SandboxTemplate itself reach the pools that are made from
// it, also those of envs, whose members may say otherwise; and then nothing is written any more.
func TestTemplateMetadataReachesPools(t *testing.T) {
	var writes atomic.Int64
	w := newWorld(t, counted(&writes))
	own := member("of-env", 0)
	own.Labels = map[string]string{"team": "of-the-member", "member": "yes"}
	name := w.env("e", own).Spec.TemplateRef.Name
	w.pool("alone", 0, 0, func(p *v1alpha1.SandboxPool) {
		p.Labels = map[string]string{"team": "of-the-pool", "mine": "yes"}
		p.Spec.Template, p.Spec.TemplateRef = nil, &v1alpha1.TemplateRef{Name: name}
	})
	w.awaitPool("of-env", "is made", func(p *v1alpha1.SandboxPool) bool { return p.Labels["team"] == "of-the-member" })

	change := func(team, note string) {
		t.Helper()
		kubetest.Eventually(t, "changed template", func() error {
			template := &v1alpha1.SandboxTemplate{}
			if err := w.c.Get(t.Context(), client.ObjectKey{Name: name}, template); err != nil {
				return err
			}
			template.Labels = map[string]string{"team": team, v1alpha1.LabelEnv: "forged", "app.kubernetes.io/instance": "app"}
			template.Annotations = map[string]string{"note": note, "meta.helm.sh/release-name": "release", v1alpha1.AnnotationDraining: "forged"}
			return w.c.Update(t.Context(), template)
		})
		for pool, also := range map[string]string{"alone": "mine", "of-env": "member"} {
			p := w.awaitPool(pool, "has its template's labels and annotations", func(p *v1alpha1.SandboxPool) bool {
				return p.Labels["team"] == team && p.Annotations["note"] == note
			})
			if p.Labels[also] != "yes" || p.Labels[v1alpha1.LabelEnv] == "forged" || p.Labels["app.kubernetes.io/instance"] != "" ||
				p.Annotations["meta.helm.sh/release-name"] != "" || p.Annotations[v1alpha1.AnnotationDraining] != "" {
				t.Errorf("pool %s: labels %v, annotations %v", pool, p.Labels, p.Annotations)
			}
		}
	}
	change("a", "1")
	change("b", "2")
	w.settled(&writes)
}
