package idle

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlane/sandlane/bench/suite"
)

// informerMemory measures the memory of pods in client-go's informer, which keeps all that the
// API server sends, as a controller's cache does.
func informerMemory(ctx context.Context, e *suite.Env) error {
	n := max(e.Objects/10, 1) // fewer pods than in the index, since each takes ten times the memory
	bytes, err := informed(ctx, n)
	if err != nil {
		return err
	}
	e.Add("idle/index/informer/pod", "bytes", "less", bytes/float64(n))
	e.Progress("informer: %.0f bytes a pod", bytes/float64(n))
	return nil
}

// informed returns the bytes of an informer that has seen n pods.
func informed(ctx context.Context, n int) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before := heap()
	informer := cache.NewSharedInformer(fleet{pods: n}.listWatch(), &corev1.Pod{}, 0)
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
