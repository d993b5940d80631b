package e2b

import (
	"archive/tar"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Twenty pods of an image that the local node has start within one and a half times what twenty of
// local/base take.
func TestPodsOfAnImageStartAsFast(t *testing.T) {
	const pods, rounds, most = 20, 5, 1.5
	bare := newLayer(t)
	bare.add(tar.Header{Name: "srv/echo", Typeflag: tar.TypeReg, Mode: 0o755}, echoServer(t))
	image := bare.push(v1.Config{})
	ns := shared.Namespace(t)
	var base v1alpha1.SandboxPool
	if err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "base"}, &base); err != nil {
		t.Fatal(err)
	}
	ofImage := base.Spec.DeepCopy()
	ofImage.Template = &v1alpha1.SandboxTemplateSpec{
		Runtimes: []v1alpha1.Runtime{v1alpha1.RuntimeSandboxd},
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}}},
	}
	start := func(name string, spec *v1alpha1.SandboxPoolSpec, n int32) time.Duration {
		t.Helper()
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: *spec.DeepCopy()}
		pool.Spec.Replicas, pool.Spec.FirstRequest = n, nil
		began := time.Now()
		if err := shared.Client.Create(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		shared.WaitIdle(t, ns, name, int(n))
		took := time.Since(began)
		if err := shared.Client.Delete(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		shared.Eventually(t, 2*time.Minute, "the pods to go", func() (bool, string) { return len(shared.PodsOf(t, ns)) == 0, name })
		return took
	}
	t.Logf("the first pod of the image was ready after %v", start("first", ofImage, 1))
	var ofBase, ofImages time.Duration // of all rounds, since one round differs from the next by a fifth
	for range rounds {
		ofBase += start("base", &base.Spec, pods)
		ofImages += start("image", ofImage, pods)
	}
	t.Logf("%d pods, on average: of local/base %v, of the image %v", pods, ofBase/rounds, ofImages/rounds)
	if ratio := ofImages.Seconds() / ofBase.Seconds(); ratio > most {
		t.Errorf("pods of the image take %.2f times as long, want %v at most", ratio, most)
	}
}
