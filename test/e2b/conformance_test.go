package e2b

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/conformance"
)

// refused is what docs/e2b.md says does not work, as far as there are cases of it.
var refused = []string{
	"network/allow_domain", "network/field_dnsServers", "network/field_egressProxy", "network/field_httpsPorts", "network/field_maskRequestHost", "network/field_rules",
	"templates/build", "templates/builds", "templates/fork", "templates/iam", "templates/mcp", "templates/secrets", "templates/tags", "templates/volume_mounts", "templates/volumes",
}

// Every case of the referee works here but those that the page names, and leaves nothing.
func TestConformance(t *testing.T) {
	shared.Eventually(t, 5*time.Minute, "a warm pod of the code interpreter", func() (bool, string) {
		pool := &v1alpha1.SandboxPool{}
		err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "code-interpreter-v1"}, pool)
		return pool.Status.Idle > pool.Status.UnavailableIdle, fmt.Sprint(pool.Status, err)
	})
	results, err := conformance.Run(t.Context(), conformance.Options{URL: shared.Up.GatewayURL, Key: shared.Up.APIKey})
	if err != nil {
		t.Error(err)
	}
	var saidNo []string
	for _, r := range results {
		switch r.Verdict {
		case conformance.Works:
		case conformance.Refused:
			saidNo = append(saidNo, r.Feature+"/"+r.Case)
		case conformance.Wrong, conformance.Unproven, conformance.NotTried:
			t.Errorf("%s/%s is %s: %s (%s)", r.Feature, r.Case, r.Verdict, r.Why, r.Source)
		}
	}
	if slices.Sort(saidNo); !slices.Equal(saidNo, refused) {
		t.Errorf("refused are %v, want %v", saidNo, refused)
	}
}
