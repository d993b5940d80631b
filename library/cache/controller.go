package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Handler is called with a copy of an object that has changed, or with nil (of the object's
// type) once the object is gone. Changes that follow each other closely lead to one call.
// After an error it is called again, with a growing delay.
type Handler[T client.Object] func(ctx context.Context, name types.NamespacedName, o T) error

// Controller calls handlers for the changes of one kind. Without a handler it costs
// nothing. Safe for concurrent use.
type Controller[T client.Object] struct {
	mgr  ctrl.Manager
	name string
	make func() T

	mu       sync.RWMutex
	handlers []Handler[T] // replaced, never changed
}

func newController[T client.Object](mgr ctrl.Manager, name string, empty func() T) *Controller[T] {
	return &Controller[T]{mgr: mgr, name: name, make: empty}
}

// AddHandler adds a handler. The first one is called for every object that exists, and then
// for each change. A handler that is added after others is called for an object only from
// its next change on.
func (x *Controller[T]) AddHandler(h Handler[T]) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.handlers) == 0 {
		yes, no := true, false
		err := ctrl.NewControllerManagedBy(x.mgr).Named(x.name).For(x.make()).
			WithOptions(controller.Options{NeedLeaderElection: &no, SkipNameValidation: &yes}).
			Complete(reconcile.Func(x.reconcile))
		if err != nil {
			return fmt.Errorf("adding a handler: %w", err)
		}
	}
	x.handlers = append(x.handlers[:len(x.handlers):len(x.handlers)], h)
	return nil
}

func (x *Controller[T]) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	x.mu.RLock()
	handlers := x.handlers
	x.mu.RUnlock()
	var errs []error
	for _, h := range handlers {
		o := x.make()
		switch err := x.mgr.GetCache().Get(ctx, req.NamespacedName, o); {
		case apierrors.IsNotFound(err):
			var none T
			o = none
		case err != nil:
			return reconcile.Result{}, err
		}
		errs = append(errs, h(ctx, req.NamespacedName, o))
	}
	return reconcile.Result{}, errors.Join(errs...)
}
