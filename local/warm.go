package local

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// warmTimeout is how long `up` waits for the warm pods of a pool.
const warmTimeout = time.Minute

// waitWarm waits until both pools have as many idle pods as they want. Without
// one of echo nothing here works, which is an error. Without base only E2B's
// SDKs have nothing to talk to, which is a warning.
func (u *up) waitWarm(ctx context.Context) error {
	if err := waitPool(ctx, u.api, echoName, u.o.PoolSize, u.o.Progress); err != nil {
		return err
	}
	err := waitPool(ctx, u.api, baseName, u.o.BasePoolSize, u.o.Progress)
	if err != nil && ctx.Err() == nil {
		u.o.Progress(fmt.Sprintf("warning: E2B's SDKs will find no sandbox: %v", err))
		return nil
	}
	return err
}

// waitPool waits until the pool has as many idle pods as it wants. Some that
// do not come up are a warning; none at all is an error.
func waitPool(ctx context.Context, api client.Client, pool string, wanted int, progress func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	printed := -1
	for idle := 0; idle < wanted; {
		select {
		case <-ctx.Done():
			if idle > 0 {
				progress(fmt.Sprintf("warning: only %d of %d pods of the pool %s are warm after %s: see `sandlane kubectl get pods`", idle, wanted, pool, warmTimeout))
				return nil
			}
			return fmt.Errorf("no pod of the pool %s became warm (%w)%s", pool, ctx.Err(), whyNotWarm(api, pool))
		case <-tick.C:
		}
		pods, err := podsOf(ctx, api, pool)
		if err != nil {
			continue // a restarting API server; the time is bounded
		}
		idle = 0
		for i := range pods {
			if v1alpha1.PhaseOf(&pods[i]) == v1alpha1.PodIdle {
				idle++
			}
		}
		if idle != printed {
			progress(fmt.Sprintf("%d of %d pods of %s are warm", idle, wanted, pool))
			printed = idle
		}
	}
	return nil
}

func podsOf(ctx context.Context, api client.Client, pool string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(poolNamespace), client.MatchingLabels{v1alpha1.LabelPool: pool}); err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", pool, err)
	}
	return pods.Items, nil
}

// whyNotWarm says what the pods' containers wait for, if they say so.
func whyNotWarm(api client.Client, pool string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	pods, err := podsOf(ctx, api, pool)
	if err != nil {
		return ": the API server does not answer"
	}
	if len(pods) == 0 {
		return ": there are none; see `sandlane logs controller`"
	}
	for _, pod := range pods {
		for _, c := range pod.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && w.Reason != "" {
				return fmt.Sprintf(": %s waits: %s %s", pod.Name, w.Reason, w.Message)
			}
		}
	}
	return fmt.Sprintf(": %s is %s; see `sandlane logs node`", pods[0].Name, v1alpha1.PhaseOf(&pods[0]))
}
