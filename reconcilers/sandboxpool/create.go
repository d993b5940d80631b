package sandboxpool

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
)

// mostAtOnce bounds one batch of creations.
const mostAtOnce = 64

// create makes n pods in batches of 1, 2, 4, …, and stops at the first batch
// with an error: a template that the API server refuses costs one request. The first
// ordered ones of them are marked as made for claims that wait.
func (r *SandboxPoolReconciler) create(ctx context.Context, pool *v1alpha1.SandboxPool, tpl *podtemplate.Template, n, ordered int) (created int, err error) {
	key := types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name}
	initKey, err := r.initKey(ctx, tpl)
	if err != nil {
		r.Metrics.created(key, err)
		return 0, err
	}
	r.expectations.ExpectCreations(key, n)
	for batch := 1; created < n; batch = min(2*batch, mostAtOnce) {
		size, first := min(batch, n-created), created
		errs := make([]error, size)
		var group errgroup.Group
		group.SetLimit(parallel)
		for i := range size {
			group.Go(func() error {
				pod := tpl.NewPod(pool)
				if first+i < ordered {
					pod.Annotations[v1alpha1.AnnotationOrdered] = "true"
				}
				initKey.Give(pod)
				if errs[i] = controllerutil.SetControllerReference(pool, pod, r.Scheme); errs[i] == nil {
					errs[i] = r.Client.Create(ctx, pod)
				}
				return nil
			})
		}
		_ = group.Wait() // the errors are in errs
		for _, e := range errs {
			r.Metrics.created(key, e)
			if e == nil {
				created++
			} else {
				err = e
			}
		}
		if err != nil {
			break
		}
	}
	for range n - created {
		r.expectations.CreationObserved(key)
	}
	return created, err
}

// explain gives an API error's reason, PoolReasonQuota for a ResourceQuota's, and the API
// server's words.
func explain(err error) (reason, message string) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Reason != "" {
		if kubeclient.QuotaExceeded(err) {
			return v1alpha1.PoolReasonQuota, status.Status().Message
		}
		return string(status.Status().Reason), status.Status().Message
	}
	return "CreateFailed", err.Error()
}
