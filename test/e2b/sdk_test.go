package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/conformance/sdk"
)

// feature is what users get, and the case of that name in a script.
type feature struct{ name, text string }

// sdkUse is one version of an SDK in one way of use.
type sdkUse struct {
	name string
	sdk  sdk.SDK
}

var sdks = []sdkUse{
	{"Python 2.63.0", sdk.SDK{Language: "python", Version: "2.63.0"}},
	{"Python 2.63.0 async", sdk.SDK{Language: "python", Version: "2.63.0", Async: true}},
	{"Python 2.45.1", sdk.SDK{Language: "python", Version: "2.45.1"}},
	{"Python 2.45.1 async", sdk.SDK{Language: "python", Version: "2.45.1", Async: true}},
	{"JS 2.51.0", sdk.SDK{Language: "js", Version: "2.51.0"}},
	{"JS 2.50.0", sdk.SDK{Language: "js", Version: "2.50.0"}},
	{"JS 2.30.5", sdk.SDK{Language: "js", Version: "2.30.5"}},
}

// args returns the command line that runs a script of this folder.
func (s sdkUse) args(ctx context.Context, t *testing.T, script string) []string {
	t.Helper()
	if s.sdk.Language == "js" {
		return []string{"node", filepath.Join("js", script+".mjs"), js(ctx, t, s.sdk.Version)}
	}
	use := "sync"
	if s.sdk.Async {
		use = "async"
	}
	return []string{python(ctx, t, s.sdk.Version), filepath.Join("python", script+".py"), use}
}

// Each SDK has each feature. What its processes print besides the results is
// shown when something is wrong.
func TestSDKs(t *testing.T) {
	var features []feature
	for _, c := range sdk.Cases {
		features = append(features, feature{c.Name, c.Text})
	}
	worked := map[string]map[string]bool{}
	t.Cleanup(func() { checkTable(t, "table", features, worked) }) // when all have run
	makeEnv(t)
	for i, s := range sdks {
		worked[s.name] = map[string]bool{}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			results := map[string]sdk.Result{}
			said, err := s.sdk.Run(ctx, sdk.Options{
				Env: []string{
					"E2B_API_KEY=" + shared.Up.APIKey, "E2B_API_URL=" + shared.Up.GatewayURL, "E2B_SANDBOX_URL=" + shared.Up.GatewayURL,
					"TEST_ELSEWHERE_URL=" + gatewayFrom(t, fmt.Sprintf("127.7.0.%d", i+1)),
				},
				Tell: func(r sdk.Result) { results[r.Name] = r },
			})
			if err != nil {
				t.Error(err)
			}
			checkResults(t, results, said, features, worked[s.name])
		})
	}
}

// makeEnv makes the env that the scripts name: two pools like base, which keep no pods.
func makeEnv(t *testing.T) {
	t.Helper()
	base, none := &v1alpha1.SandboxPool{}, int32(0)
	if err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "base"}, base); err != nil {
		t.Fatal(err)
	}
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "by-env"}, Spec: *base.Spec.Template}
	e := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "by-env"}}
	e.Spec.TemplateRef.Name = template.Name
	e.Spec.Clusters = []v1alpha1.EnvCluster{{ClusterID: "local", Members: []v1alpha1.EnvMember{
		{Name: "by-env-a", Spec: v1alpha1.EnvMemberSpec{Replicas: &none}}, {Name: "by-env-b", Spec: v1alpha1.EnvMemberSpec{Replicas: &none}},
	}}}
	for _, o := range []client.Object{template, e} {
		if err := shared.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = shared.Client.Delete(context.Background(), o) })
	}
	shared.Eventually(t, time.Minute, "the pools of the env", func() (bool, string) {
		var pools v1alpha1.SandboxPoolList
		err := shared.Client.List(t.Context(), &pools, client.MatchingLabels{v1alpha1.LabelEnv: "by-env"})
		return len(pools.Items) == 2, fmt.Sprint(len(pools.Items), err)
	})
}

// judge runs a script and notes which of the features worked; the others fail. It returns
// what the script printed besides.
func judge(t *testing.T, cmd *exec.Cmd, features []feature, worked map[string]bool) (said string) {
	t.Helper()
	results, said := runScript(t, cmd)
	checkResults(t, results, said, features, worked)
	return said
}

// checkResults is judge for what a script has printed.
func checkResults(t *testing.T, results map[string]sdk.Result, said string, features []feature, worked map[string]bool) {
	t.Helper()
	for _, f := range features {
		r, ran := results[f.name]
		delete(results, f.name)
		switch {
		case !ran:
			t.Errorf("%s did not run", f.name)
		case !r.OK:
			t.Errorf("%s: %s", f.name, r.Error)
		default:
			worked[f.name] = true
		}
	}
	for name := range results {
		t.Errorf("%s is not in the list of features", name)
	}
	if t.Failed() {
		t.Logf("it said:\n%s", said)
	}
}

func runScript(t *testing.T, cmd *exec.Cmd) (results map[string]sdk.Result, said string) {
	t.Helper()
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	if err := cmd.Run(); err != nil {
		t.Errorf("the cases ended with %v", err)
	}
	results = map[string]sdk.Result{}
	for line := range strings.Lines(out.String()) {
		var r sdk.Result
		if json.Unmarshal([]byte(line), &r) != nil || r.Name == "" {
			fmt.Fprint(&errs, line)
			continue
		}
		results[r.Name] = r
	}
	t.Logf("%d cases in %v", len(results), time.Since(began).Round(100*time.Millisecond))
	return results, errs.String()
}
