package idle

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlane/sandlane/bench/suite"
)

// informerMemory measures the memory of the same pods in client-go's informer, which keeps
// whole pods: a gateway without an index of its own would need that memory. One of its two
// rows has all that the API server sends, the other is without managedFields, which many
// controllers leave out.
func informerMemory(ctx context.Context, e *suite.Env) error {
	strip := func(o any) (any, error) {
		m, err := meta.Accessor(o)
		if err != nil {
			return nil, err
		}
		m.SetManagedFields(nil)
		return o, nil
	}
	n := max(e.Objects/10, 1) // fewer pods than in the index, since each takes ten times the memory
	for _, kind := range []struct {
		name      string
		transform cache.TransformFunc
	}{{"informer", nil}, {"informer-stripped", strip}} {
		bytes, err := informed(ctx, n, kind.transform)
		if err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
		e.Add("idle/index/"+kind.name+"/pod", "bytes", "less", bytes/float64(n))
		e.Add("idle/index/"+kind.name+"/per-10000-pods", "MB", "less", bytes/float64(n)*10_000/(1<<20))
		e.Progress("%s: %.0f bytes a pod", kind.name, bytes/float64(n))
	}
	return nil
}

// informed returns the bytes of an informer that has seen n pods.
func informed(ctx context.Context, n int, transform cache.TransformFunc) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before := heap()
	informer := cache.NewSharedInformer(fleet{pods: n}.listWatch(), &corev1.Pod{}, 0)
	if err := informer.SetTransform(transform); err != nil {
		return 0, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.Run(ctx.Done())
	}()
	defer func() { <-done }()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return 0, errors.New("the informer saw no end of the pods")
	}
	after := heap()
	if got := len(informer.GetStore().ListKeys()); got != n {
		return 0, fmt.Errorf("the informer has %d of %d pods", got, n)
	}
	runtime.KeepAlive(informer)
	return after - before, nil
}
