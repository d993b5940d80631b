package lastcreate

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// api is an API server with one pool, which counts writes and can be away.
type api struct {
	t  *testing.T
	c  client.WithWatch
	mu sync.Mutex // guards what follows
	// away fails every call; hang lets them run into their deadlines.
	away, hang bool
	writes     int
	before     func() // runs before a write is applied
}

var errAway = apierrors.NewServiceUnavailable("the API server is away")

func newAPI(t *testing.T, annotations map[string]string) *api {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Annotations: annotations}}
	a := &api{t: t, c: fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool).Build()}
	return a
}

func (a *api) client() client.Client {
	call := func(ctx context.Context) error {
		a.mu.Lock()
		away, hang := a.away, a.hang
		a.mu.Unlock()
		if hang {
			<-ctx.Done()
			return ctx.Err()
		}
		if away {
			return errAway
		}
		return nil
	}
	return interceptor.NewClient(a.c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := call(ctx); err != nil {
				return err
			}
			return c.Get(ctx, k, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := call(ctx); err != nil {
				return err
			}
			a.mu.Lock()
			before := a.before
			a.before = nil
			a.mu.Unlock()
			if before != nil {
				before()
			}
			// The fake client wants the object to be there whole, and fails a test in words of its own.
			err := c.Patch(ctx, o, p, opts...)
			if err != nil && !apierrors.IsNotFound(err) {
				return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Code: 422, Message: err.Error()}}
			}
			if err == nil {
				a.mu.Lock()
				a.writes++
				a.mu.Unlock()
			}
			return err
		},
	})
}

func (a *api) set(change func(*api)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
}

func (a *api) written() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.writes
}

// noted is what the annotation says.
func (a *api) noted() string {
	a.t.Helper()
	pool := &v1alpha1.SandboxPool{}
	if err := a.c.Get(context.Background(), key, pool); err != nil {
		a.t.Fatal(err)
	}
	return pool.Annotations[v1alpha1.AnnotationLastCreate]
}

func (a *api) write(value string) {
	a.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationLastCreate, value)
	pool := &v1alpha1.SandboxPool{}
	pool.Namespace, pool.Name = key.Namespace, key.Name
	if err := a.c.Patch(context.Background(), pool, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		a.t.Fatal(err)
	}
}

func (a *api) wantNoted(want time.Time, when string) {
	a.t.Helper()
	if got := a.noted(); got != want.UTC().Format(time.RFC3339Nano) {
		a.t.Errorf("%s: %q, want %s", when, got, want.UTC().Format(time.RFC3339Nano))
	}
}
