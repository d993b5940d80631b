package e2b

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/conformance"
	"github.com/sandlane/sandlane/conformance/sdk"
)

// refused is what docs/e2b.md says does not work, as far as there are cases of it.
var refused = []string{
	"network/allow_domain", "network/field_dnsServers", "network/field_egressProxy", "network/field_httpsPorts", "network/field_maskRequestHost", "network/field_rules",
	"templates/fork", "templates/iam", "templates/mcp", "templates/secrets", "templates/tags", "templates/volume_mounts", "templates/volumes",
}

// Every case of the referee works here but those that the page names, and leaves nothing.
func TestConformance(t *testing.T) {
	shared.Eventually(t, 5*time.Minute, "a warm pod of the code interpreter", func() (bool, string) {
		pool := &v1alpha1.SandboxPool{}
		err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "code-interpreter-v1"}, pool)
		return pool.Status.Idle > pool.Status.UnavailableIdle, fmt.Sprint(pool.Status, err)
	})
	inEnvoy, all, err := shared.FastPathShare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	results, err := conformance.Run(t.Context(), conformance.Options{URL: shared.Up.GatewayURL, Key: shared.Up.APIKey})
	if err != nil {
		t.Error(err)
	}
	inEnvoyAfter, allAfter, err := shared.FastPathShare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	referee.inEnvoy, referee.all = inEnvoyAfter-inEnvoy, allAfter-all
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

// The referee runs SDKs too, says why it does not try a case, and leaves nothing when it is
// stopped.
func TestConformanceOfSDKs(t *testing.T) {
	t.Parallel()
	options := conformance.Options{
		URL: shared.Up.GatewayURL, Key: shared.Up.APIKey, SDKs: []sdk.SDK{sdks[4].sdk},
		Only: []string{"sdk/files_basic", "sdk/create_env"},
	}
	results, err := conformance.Run(t.Context(), options)
	if err != nil {
		t.Error(err)
	}
	verdicts := map[string]conformance.Verdict{}
	for _, r := range results {
		verdicts[r.Case] = r.Verdict
		if r.Verdict != conformance.Works && r.Why == "" {
			t.Errorf("%v has no reason", r)
		}
	}
	if want := map[string]conformance.Verdict{"files_basic": conformance.Works, "create_env": conformance.NotTried}; !maps.Equal(verdicts, want) {
		t.Errorf("got %v, want %v: %v", verdicts, want, results)
	}

	ctx, stop := context.WithCancel(t.Context())
	options.Only = []string{"sdk"}
	options.Progress = func(conformance.Result) { stop() } // after the first case, beside a sandbox for all
	results, err = conformance.Run(ctx, options)
	if err != nil || len(results) != len(sdk.Cases) {
		t.Errorf("%d results, %v", len(results), err)
	}
	var all v1alpha1.SandboxList
	if err := shared.Client.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, s := range all.Items {
		if s.Spec.Metadata["sandlane-conformance"] != "" && s.Status.Phase != v1alpha1.SandboxEnding && s.Status.Phase != v1alpha1.SandboxEnded && s.DeletionTimestamp.IsZero() {
			t.Errorf("the referee left %s, %s, of %v", s.Name, s.Status.Phase, s.Spec.Metadata)
		}
	}
}
