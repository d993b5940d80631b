package sandboxpool

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
)

// template resolves the pool's template; nil for no pool. Errors that the user
// must mend are *podtemplate.Error.
func (r *SandboxPoolReconciler) template(ctx context.Context, pool *v1alpha1.SandboxPool) (*podtemplate.Template, error) {
	if pool == nil {
		return nil, nil
	}
	spec := pool.Spec.Template
	if ref := pool.Spec.TemplateRef; spec == nil && ref != nil {
		var t v1alpha1.SandboxTemplate
		err := r.Client.Get(ctx, client.ObjectKey{Name: ref.Name}, &t, client.UnsafeDisableDeepCopy) // it is only read
		if apierrors.IsNotFound(err) {
			return nil, &podtemplate.Error{Reason: "TemplateNotFound", Message: fmt.Sprintf("there is no SandboxTemplate %q", ref.Name)}
		}
		if err != nil {
			return nil, fmt.Errorf("reading template %s: %w", ref.Name, err)
		}
		spec = &t.Spec
	}
	if spec == nil {
		return nil, &podtemplate.Error{Reason: "TemplateMissing", Message: "the pool has neither template nor templateRef"}
	}
	if pool.Spec.Egress == v1alpha1.EgressByName {
		var err error
		if spec, err = podtemplate.ByName(spec, r.EgressAddress); err != nil {
			return nil, err
		}
	}
	return podtemplate.New(spec, pool.Spec.PodCreationImagePolicy, r.SandboxdImage)
}

var errNoInitKeys = errors.New("this controller has no init keys, which pods with sandboxd need")

// initKey returns the key for new pods of a template; the zero value if they do not
// run sandboxd. It is asked for by each batch of pods, and not kept: a rotation counts
// for the next one.
func (r *SandboxPoolReconciler) initKey(ctx context.Context, tpl *podtemplate.Template) (podtemplate.InitKey, error) {
	if !v1alpha1.RunsSandboxd(&tpl.Pod.Spec) {
		return podtemplate.InitKey{}, nil
	}
	if r.InitKey == nil {
		return podtemplate.InitKey{}, errNoInitKeys
	}
	return r.InitKey(ctx)
}

// IdleContainerImages returns the images that a pod of the pool runs until it is
// claimed, by container. template is the one that the pool refers to; nil for one
// with a template of its own.
func IdleContainerImages(pool *v1alpha1.SandboxPool, template *v1alpha1.SandboxTemplateSpec) (map[string]string, error) {
	if pool.Spec.Template != nil {
		template = pool.Spec.Template
	}
	if template == nil || len(template.Template.Spec.Containers) == 0 {
		return nil, errors.New("the pool has no template with containers")
	}
	t, err := podtemplate.Render(template, pool.Spec.PodCreationImagePolicy)
	if err != nil {
		return nil, err
	}
	images := map[string]string{}
	for i := range t.Pod.Spec.Containers {
		images[t.Pod.Spec.Containers[i].Name] = t.Pod.Spec.Containers[i].Image
	}
	return images, nil
}
