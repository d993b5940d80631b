package cache

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// guardedReader fails once the Cache is stopped, since its informers would return outdated
// objects.
type guardedReader struct {
	client.Reader
	usable func() error
}

// Get implements client.Reader.
func (g guardedReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := g.usable(); err != nil {
		return err
	}
	return g.Reader.Get(ctx, key, o, opts...)
}

// List implements client.Reader.
func (g guardedReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := g.usable(); err != nil {
		return err
	}
	return g.Reader.List(ctx, list, opts...)
}

// guardedClient is guardedReader for a whole client.
type guardedClient struct {
	client.Client
	usable func() error
}

// Get implements client.Reader.
func (g guardedClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return guardedReader{g.Client, g.usable}.Get(ctx, key, o, opts...)
}

// List implements client.Reader.
func (g guardedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return guardedReader{g.Client, g.usable}.List(ctx, list, opts...)
}

// Create implements client.Writer.
func (g guardedClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if err := g.usable(); err != nil {
		return err
	}
	return g.Client.Create(ctx, o, opts...)
}

// Delete implements client.Writer.
func (g guardedClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if err := g.usable(); err != nil {
		return err
	}
	return g.Client.Delete(ctx, o, opts...)
}

// DeleteAllOf implements client.Writer.
func (g guardedClient) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	if err := g.usable(); err != nil {
		return err
	}
	return g.Client.DeleteAllOf(ctx, o, opts...)
}

// Update implements client.Writer.
func (g guardedClient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if err := g.usable(); err != nil {
		return err
	}
	return g.Client.Update(ctx, o, opts...)
}

// Patch implements client.Writer.
func (g guardedClient) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if err := g.usable(); err != nil {
		return err
	}
	return g.Client.Patch(ctx, o, p, opts...)
}

// Apply implements client.Writer.
func (g guardedClient) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if err := g.usable(); err != nil {
		return err
	}
	return g.Client.Apply(ctx, o, opts...)
}

// Status implements client.StatusClient.
func (g guardedClient) Status() client.SubResourceWriter { return g.SubResource("status") }

// SubResource implements client.SubResourceClientConstructor.
func (g guardedClient) SubResource(name string) client.SubResourceClient {
	return guardedSubResource{g.Client.SubResource(name), g.usable}
}

// guardedSubResource is guardedClient for a subresource.
type guardedSubResource struct {
	client.SubResourceClient
	usable func() error
}

// Get implements client.SubResourceReader.
func (g guardedSubResource) Get(ctx context.Context, o, sub client.Object, opts ...client.SubResourceGetOption) error {
	if err := g.usable(); err != nil {
		return err
	}
	return g.SubResourceClient.Get(ctx, o, sub, opts...)
}

// Create implements client.SubResourceWriter.
func (g guardedSubResource) Create(ctx context.Context, o, sub client.Object, opts ...client.SubResourceCreateOption) error {
	if err := g.usable(); err != nil {
		return err
	}
	return g.SubResourceClient.Create(ctx, o, sub, opts...)
}

// Update implements client.SubResourceWriter.
func (g guardedSubResource) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	if err := g.usable(); err != nil {
		return err
	}
	return g.SubResourceClient.Update(ctx, o, opts...)
}

// Patch implements client.SubResourceWriter.
func (g guardedSubResource) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if err := g.usable(); err != nil {
		return err
	}
	return g.SubResourceClient.Patch(ctx, o, p, opts...)
}

// Apply implements client.SubResourceWriter.
func (g guardedSubResource) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	if err := g.usable(); err != nil {
		return err
	}
	return g.SubResourceClient.Apply(ctx, o, opts...)
}
