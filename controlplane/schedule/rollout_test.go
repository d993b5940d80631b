package schedule

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// While a template is rolled out that adds a container, a claim which gives that
// container an image gets a pod that has it. Only where no pod does is it invalid.
func TestPodsThatLackAContainerArePassedOver(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		offer := func(name string, containers ...corev1.Container) {
			r.api.idle(name)
			r.api.change(name, func(p *corev1.Pod) { p.Spec.Containers = containers })
			r.Offer(r.api.pod(name))
		}
		main, added := corev1.Container{Name: "main", Image: "a"}, corev1.Container{Name: "added", Image: "b"}
		offer("old1", main)
		offer("new1", main, added)
		offer("old2", main)
		offer("new2", main, added)
		wants := func(q *ClaimRequest) { q.Opts.ContainerImages = map[string]string{"added": "c"} }
		gets(t, r.ask(t, "r1", time.Minute, wants), "new1")
		gets(t, r.ask(t, "r2", time.Minute, wants), "new2")
		fails(t, r.ask(t, "r3", time.Minute, wants), ErrInvalid)
		gets(t, r.ask(t, "r4", time.Minute), "old1")
		synctest.Wait()
		if n := r.api.count("claim"); n != 3 {
			t.Errorf("%d claim PATCHes for three claims", n)
		}
	})
}
