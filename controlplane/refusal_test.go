package controlplane

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlane/sandlane/test/bubble"
)

// refusePatches makes the API server answer each patch as a validation that fails does,
// and counts the requests that are not lists.
func (f *fakeAPI) refusePatches() (asked map[string]int) {
	asked = map[string]int{}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = func(verb, name string) error {
		asked[verb]++
		if verb != "patch" {
			return nil
		}
		return apierrors.NewInvalid(schema.GroupKind{Group: leaseResource.Group, Kind: "Lease"}, name,
			field.ErrorList{field.Forbidden(field.NewPath("spec"), "not now")})
	}
	return asked
}

// A revocation that the API server refuses is not done: the holder may renew.
func TestRevokeTellsThatItIsRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.write(lease("gw", "a/1", 600, time.Now()))
		d := newDirectory(t, api)
		gateways, err := d.List(t.Context())
		if err != nil || len(gateways) != 1 {
			t.Fatal(gateways, err)
		}
		api.refusePatches()
		if err := d.Revoke(t.Context(), gateways[0]); !apierrors.IsInvalid(err) {
			t.Errorf("refused by a validation: %v", err)
		}
		api.setAway(false)
		api.write(lease("gw", "a/2", 600, time.Now()))
		if err := d.Revoke(t.Context(), gateways[0]); err != nil {
			t.Errorf("it has another holder: %v", err)
		}
	})
}

// A renewal that a validation refuses has passed its tests: the lease is still this
// gateway's, and needs no look.
func TestRefusedRenewalLosesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		g := newMember(t, api, nil)
		g.start(t)
		asked := api.refusePatches()
		if err := g.renew(t.Context(), time.Second); errors.Is(err, errLost) || !apierrors.IsInvalid(err) {
			t.Errorf("refused by a validation: %v", err)
		}
		if asked["get"] != 0 {
			t.Errorf("it read the lease %d times", asked["get"])
		}
		api.setAway(false)
		g.stop(t)
	})
}
