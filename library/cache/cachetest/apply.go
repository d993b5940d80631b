package cachetest

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// errApply refuses server-side apply: what the fake client would make of it is not what an
// API server does (it makes no new object, and takes no field away), and informers would
// not hear of it.
var errApply = errors.New("cachetest does no server-side apply: use Create, Update or another kind of Patch")

// interceptors change what the fake client does: see refuse and errApply.
func interceptors() interceptor.Funcs {
	return interceptor.Funcs{
		Patch: refuse,
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return errApply
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if p.Type() == types.ApplyPatchType {
				return errApply
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
		SubResourceApply: func(context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
			return errApply
		},
	}
}
