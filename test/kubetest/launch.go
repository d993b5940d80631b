package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/sandlane/sandlane/api/crds"
	"github.com/sandlane/sandlane/api/v1alpha1"
)

const (
	assetsVariable = "KUBEBUILDER_ASSETS"
	// patience is for machines that are busy with other packages' tests.
	patience = time.Minute
)

// ControlPlane is a running API server with its etcd. Benchmarks, which are no
// tests, launch one of their own.
type ControlPlane struct {
	// Config is an administrator's, without client-side rate limits; KubeConfig is
	// the same as a file's text. Client uses it.
	Config     *rest.Config
	KubeConfig []byte
	Client     client.WithWatch

	env    *envtest.Environment
	forget func() // what would stop both after this process
}

// Launch starts a control plane with Sandlane's CRDs, which the caller stops.
func Launch() (*ControlPlane, error) { return launch(&envtest.Environment{}) }

func launch(env *envtest.Environment) (*ControlPlane, error) {
	if err := CheckAssets(); err != nil {
		return nil, err
	}
	definitions, err := crds.All()
	if err != nil {
		return nil, err
	}
	env.CRDInstallOptions = envtest.CRDInstallOptions{CRDs: definitions, MaxTime: patience}
	env.ControlPlaneStartTimeout = patience
	if env.ControlPlaneStopTimeout == 0 {
		env.ControlPlaneStopTimeout = patience
	}
	p := &ControlPlane{env: env}
	if p.Config, err = env.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the control plane: %w", err), env.Stop())
	}
	if p.forget, err = guard(env); err != nil {
		return nil, errors.Join(err, env.Stop())
	}
	p.Config.QPS, p.KubeConfig = -1, env.KubeConfig
	if p.Client, err = client.NewWithWatch(p.Config, client.Options{Scheme: Scheme()}); err != nil {
		return nil, errors.Join(fmt.Errorf("making a client: %w", err), p.Stop())
	}
	if err := settle(p.Client); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// EtcdURL is where etcd listens.
func (p *ControlPlane) EtcdURL() string { return p.env.ControlPlane.Etcd.URL.String() }

// Stop ends both processes.
func (p *ControlPlane) Stop() error {
	defer p.forget()
	return p.env.Stop()
}

// CheckAssets returns an error that says what to do if the binaries of the control
// plane are not named by the environment.
func CheckAssets() error {
	if os.Getenv(assetsVariable) != "" {
		return nil
	}
	return errors.New(assetsVariable + " is not set: run `make test`, which finds or builds etcd and kube-apiserver, " +
		"or set it to a folder that holds them")
}

// settle waits out the two seconds in which the API server delays creates of
// objects whose CRD is new, so that no test meets them. It tries every kind: each
// has a moment of its own.
func settle(c client.Client) error {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "probe"}
	template := v1alpha1.SandboxTemplateSpec{Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	}}
	for _, obj := range []client.Object{
		&v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: v1alpha1.SandboxSpec{Namespace: "default", Pool: "probe"}},
		&v1alpha1.SandboxPool{ObjectMeta: meta, Spec: v1alpha1.SandboxPoolSpec{Template: &template}},
		&v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: template},
	} {
		if err := c.Create(context.Background(), obj, client.DryRunAll); err != nil {
			return fmt.Errorf("trying a first create of %T: %w", obj, err)
		}
	}
	return nil
}
