package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// The gateway that makes a snapshot is killed at each step of that: the sandbox goes on in
// the same process, what was kept half is no snapshot, and the next snapshot is made.
func TestKilledAtEachStepOfASnapshot(t *testing.T) {
	h := newHibernating(t)
	gateways := shared.Up.Gateways
	for n, point := range []string{"snapshots/created", "snapshots/kept"} {
		t.Run(fmt.Sprintf("%d-%s", n, strings.ReplaceAll(point, "/", "-")), func(t *testing.T) {
			h.t = t
			i := n % len(gateways)
			by, other := gateways[i], gateways[(i+1)%len(gateways)]
			s := h.made(other)
			path := "/sandboxes/" + s.id + "/snapshots"
			former := gatewayPID(t, i, 0)
			arm(t, by.Name, point, "kill")
			if a, err := by.REST(t.Context(), nil, h.key, http.MethodPost, path, "{}"); err == nil && a.Status < 300 {
				t.Errorf("it is answered with %v", a)
			}
			waitHit(t, by.Name, point)
			gatewayPID(t, i, former)
			h.runs(s, either)
			if process := h.served(s.id); process != s.process {
				t.Errorf("the process %s answers, and %s did before", process, s.process)
			}
			if a, err := other.REST(t.Context(), nil, h.key, http.MethodGet, "/snapshots", ""); err != nil || a.Status != http.StatusOK || strings.TrimSpace(string(a.Body)) != "[]" {
				t.Errorf("the snapshots are %v, %v", a, err)
			}
			var made struct{ SnapshotID string }
			shared.Eventually(t, time.Minute, "a snapshot by "+other.Name, func() (bool, string) {
				a, err := other.REST(t.Context(), nil, h.key, http.MethodPost, path, "{}")
				return err == nil && a.Status == http.StatusCreated && json.Unmarshal(a.Body, &made) == nil, fmt.Sprint(a, err)
			})
			if a, err := other.REST(t.Context(), nil, h.key, http.MethodDelete, "/templates/"+made.SnapshotID, ""); err != nil || a.Status != http.StatusNoContent {
				t.Errorf("its deletion is answered with %v, %v", a, err)
			}
			// The controller would take three minutes to call the other one failed.
			if err := shared.Client.DeleteAllOf(t.Context(), &v1alpha1.Checkpoint{}, client.InNamespace(h.ns)); err != nil {
				t.Error(err)
			}
			h.kill(other, s)
		})
	}
	h.t = t
	h.nothingLeft()
}
