package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// 50 claims while the status of every pod changes all the time: no label or
// annotation of a claim is ever lost. With SANDLANE_STORM=full, as in `make test-all`,
// they are 200, and the status writes as many as the machine can do.
func TestClaimsSurviveStatusWrites(t *testing.T) {
	t.Parallel()
	takeTurn(t)
	n, pace := 50, rate.NewLimiter(100, 1)
	if os.Getenv("SANDLANE_STORM") == "full" {
		n, pace = 200, rate.NewLimiter(rate.Inf, 1)
	}
	least := int64(5 * n / 2) // status writes during the claims, however slow the machine is
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 20)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writes atomic.Int64
	var churn sync.WaitGroup
	for range 4 {
		churn.Go(func() {
			for ctx.Err() == nil {
				for _, p := range shared.PodsOf(t, ns) {
					if pace.Wait(ctx) != nil {
						return
					}
					now := time.Now().Format(time.RFC3339Nano)
					patch := fmt.Appendf(nil, `{"status":{"message":%q}}`, now)
					pod := &corev1.Pod{}
					pod.Namespace, pod.Name = ns, p.Name
					err := shared.Client.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch))
					if err == nil {
						writes.Add(1)
					}
				}
			}
		})
	}
	claims := map[string]stack.Echo{}
	var mu sync.Mutex
	work := make(chan string)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for id := range work {
				a, err := shared.Try(t.Context(), nil, stack.Request{ID: id, Pool: ns + "/pool"})
				if err != nil || a.Echo == nil {
					t.Errorf("%s: %v, %v", id, a, err)
					continue
				}
				mu.Lock()
				claims[id] = *a.Echo
				mu.Unlock()
			}
		})
	}
	for i := range n {
		shared.Eventually(t, time.Minute, "status writes to go on", func() (bool, string) {
			now := writes.Load()
			return now >= least*int64(i+1)/int64(n), fmt.Sprintf("%d at claim %d", now, i)
		})
		work <- fmt.Sprintf("churn-%d", i)
	}
	close(work)
	clients.Wait()
	during := writes.Load()
	cancel()
	churn.Wait()
	if len(claims) != n || during < least {
		t.Fatalf("%d claims during %d status writes; want %d and at least %d", len(claims), during, n, least)
	}
	pods := map[string]corev1.Pod{}
	for _, p := range shared.PodsOf(t, ns) {
		pods[string(p.UID)] = p
	}
	for id, e := range claims {
		p, ok := pods[e.PodUID]
		sb, found := shared.Sandbox(t, id)
		if !ok || !found || !v1alpha1.Backs(&p, &sb) || v1alpha1.PhaseOf(&p) != v1alpha1.PodRunning || p.Annotations[v1alpha1.AnnotationClaimedAt] == "" {
			meta, _ := json.Marshal(p.ObjectMeta)
			t.Errorf("%s lost its claim: %s, binding %+v", id, meta, sb.Spec.Binding)
		}
	}
	t.Logf("%d claims during %d status writes", n, during)
}
