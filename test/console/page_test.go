package console

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/console/processes"
	"github.com/sandlane/sandlane/test/kubetest"
)

// Five faults are on the first page, each with what to do.
func TestFiveFaults(t *testing.T) {
	const ns = "team-a"
	none, image := poolOf(ns, "none"), poolOf(ns, "image")
	condition := func(kind string, is metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: is, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}
	}
	none.Status = v1alpha1.SandboxPoolStatus{WaitingClaims: 4, Conditions: []metav1.Condition{condition(v1alpha1.PoolConditionAvailable, metav1.ConditionFalse, "NoIdlePod", "no pod is idle and Ready")}}
	image.Status.Conditions = []metav1.Condition{condition(v1alpha1.PoolConditionDegraded, metav1.ConditionTrue, "ErrImagePull", "container main is waiting: ErrImagePull: no such image")}
	none.Spec.Replicas, image.Spec.Replicas = 5, 3
	cfg := played(t, map[string]client.ObjectList{
		"sandboxpools": &v1alpha1.SandboxPoolList{Items: []v1alpha1.SandboxPool{*none, *image}},
		"leases":       &coordinationv1.LeaseList{Items: []coordinationv1.Lease{*lease(ns, "gw-cut", 2*time.Minute), *lease(ns, "gw-cert", -time.Hour)}},
	})
	find := func(context.Context) ([]processes.Process, error) {
		return []processes.Process{{Name: "gw-cert", Gateway: true, ReadMetrics: func(_ context.Context, path string) ([]byte, error) {
			if path == "/metrics" {
				return []byte("sandlane_controlplane_lease_held 1\nsandlane_fastpath_trusted 1\nsandlane_routecache_entries 7\nsandlane_snapshot_store_full 1\n"), nil
			}
			return []byte("envoy_server_days_until_first_cert_expiring{} 2\n"), nil
		}}}, nil
	}
	b := open(t, serve(t, cfg, ns, find))
	b.sees(ns+"/none: no stock", "4 requests wait", "ErrImagePull", "correct the image",
		"gw-cut: its lease was last renewed", "the checkpoint store is full", "the certificate that clients see ends in 2 days")
	if os.Getenv(shotsEnv) != "" { // a plot needs more than one sample
		kubetest.Eventually(t, "a plot", func() error {
			if n := evaluate[int](b, `document.querySelector("#plot polyline").points.length`); n < 8 {
				return fmt.Errorf("it has %d points", n)
			}
			return nil
		})
	}
	b.shoot("light", 1100, 760, "light")
	b.shoot("dark", 1100, 760, "dark")
	b.tab(4)
	b.sees("gw-cert", "2 days")
}

// The address of a later run may be pasted into the tab of a former one.
func TestAddressOfALaterRun(t *testing.T) {
	url := serve(t, played(t, nil), "system", nil)
	page, _, _ := strings.Cut(url, "#")
	b := open(t, page+"#former")
	b.sees("open the address that was printed")
	evaluate[string](b, fmt.Sprintf("location.href = %q", url))
	b.sees("none has a lease")
}
