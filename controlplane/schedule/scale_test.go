package schedule

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

func everyGateway(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// 300 claims at once on 300 warm pods: 300 different pods, one write each with
// one gateway, at most 15 that met another's with three. The metrics say so. A short
// run has 100 of each for one gateway, which is alone, and runs beside other packages that
// delay the watches by which gateways see each other's claims: there twice as many may meet.
func TestAClaimForEachOfThreeHundred(t *testing.T) {
	for _, gateways := range []int{1, 3} {
		n := 300
		if gateways == 1 && !full() {
			n = 100
		}
		t.Run(fmt.Sprintf("gateways=%d", gateways), func(t *testing.T) {
			f := newFleet(t, gateways)
			f.warm(n)
			f.sees(n)
			served := map[string]string{}
			start := time.Now()
			if left := f.take(f.ask(n, everyGateway(gateways)...), n, served); len(left) > 0 {
				t.Fatalf("%d wait", len(left))
			}
			took := time.Since(start)
			f.judge(served)
			if len(served) != n {
				t.Errorf("%d of %d pods were given out", len(served), n)
			}
			conflicts := f.all("claims_total conflict")
			t.Logf("%d claims in %v, %v conflicts", n, took.Round(time.Millisecond), conflicts)
			if limit := float64(0); gateways > 1 {
				limit = float64(n) * 0.05
				if !full() {
					limit *= 2
				}
				if conflicts > limit {
					t.Errorf("%v of %d claims met another's, want at most %v", conflicts, n, limit)
				}
			} else if conflicts > limit {
				t.Errorf("one gateway met itself %v times", conflicts)
			}
			f.metricsAfter(n)
		})
	}
}

// metricsAfter checks every metric of parts.md after n requests got n pods.
func (f *fleet) metricsAfter(n int) {
	f.t.Helper()
	kubetest.Eventually(f.t, "the watches to show every claim", func() error {
		if left := f.all("reservations") + f.all("ready_pods"); left != 0 {
			return fmt.Errorf("%v pods are still reserved or ready", left)
		}
		return nil
	})
	for name, want := range map[string]float64{
		"claims_total success": float64(n), "claims_total ambiguous": 0, "claims_total error": 0,
		"dispatch_seconds": float64(n), "waiting_requests": 0, "reservations_expired_total": 0,
	} {
		if got := f.all(name); got != want {
			f.t.Errorf("metric %s is %v, want %v", name, got, want)
		}
	}
	// A pod that another gateway claimed leaves this one's queue unclaimed, or
	// was met by a claim that lost.
	if got, want := f.all("evicted_entries_total")+f.all("claims_total conflict"), float64(n*(len(f.sets)-1)); got != want {
		f.t.Errorf("%v pods left queues unclaimed or were lost to others, want %v", got, want)
	}
}

// On 250 warm pods (100 in a short run) as many claims succeed at once. Fifty more
// wait, none of them fails, and they get the pods that come. The pool is told.
func TestFiftyWaitForTheRefill(t *testing.T) {
	warm, late := 100, 50
	if full() {
		warm = 250
	}
	for _, gateways := range []int{1, 3} {
		t.Run(fmt.Sprintf("gateways=%d", gateways), func(t *testing.T) {
			f := newFleet(t, gateways)
			f.warm(warm)
			f.sees(warm)
			served := map[string]string{}
			waiting := f.take(f.ask(warm+late, everyGateway(gateways)...), warm, served)
			kubetest.Eventually(t, "the rest to wait", func() error {
				if n := f.all("waiting_requests"); n != float64(late) {
					return fmt.Errorf("%v wait", n)
				}
				return nil
			})
			pool := &v1alpha1.SandboxPool{}
			kubetest.Eventually(t, "the pool to be told", func() error {
				if err := f.c.Get(t.Context(), client.ObjectKey{Namespace: f.ns, Name: "pool"}, pool); err != nil {
					return err
				}
				if pool.Annotations[v1alpha1.AnnotationScaleUpPending] == "" {
					return errors.New("it is not")
				}
				return nil
			})
			early := f.all("claims_total conflict")
			f.warm(late)
			if left := f.take(waiting, late, served); len(left) > 0 {
				t.Fatalf("%d still wait", len(left))
			}
			f.judge(served)
			if len(served) != warm+late {
				t.Errorf("%d of %d pods were given out", len(served), warm+late)
			}
			t.Logf("conflicts: %v for the stock, %v for the refill", early, f.all("claims_total conflict")-early)
		})
	}
}

// Stock that lies nearest to other gateways is not kept for them: one that has
// all the requests gets all the pods.
func TestNoRequestStarvesBesideStock(t *testing.T) {
	const n = 60
	for asked := range 3 {
		t.Run(fmt.Sprint("gateway ", asked), func(t *testing.T) {
			f := newFleet(t, 3)
			f.warm(n)
			f.sees(n)
			served := map[string]string{}
			f.take(f.ask(n, asked), n, served)
			f.judge(served)
			if len(served) != n {
				t.Errorf("%d of %d", len(served), n)
			}
		})
	}
}
