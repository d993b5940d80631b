package referee

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/conformance"
	"github.com/sandlane/sandlane/test/stack"
)

var shared *stack.Stack

func TestMain(m *testing.M) {
	os.Exit(stack.Main(m, func(s *stack.Stack) error { shared = s; return nil },
		"--isolation", "full", "--base-pool-size", "4", "--interpreter-pool-size", "1"))
}

// fault is what a wrong backend does.
type fault struct {
	name string
	// feature is the one of which a case at least must be called wrong; also are others, by
	// names with spaces between them, that the changed requests or answers may be part of.
	feature, also string
	hop           hop
}

var faults = slices.Concat(processFaults, entryFaults, fileFaults, sandboxFaults, stateFaults, portFaults)

// always are asked with each fault beside what it touches.
var always = []string{"entries", "rest_errors", "templates"}

// Each feature has two faults, the interpreter one at least.
func TestFaultsCoverFeatures(t *testing.T) {
	features, err := conformance.Features()
	if err != nil {
		t.Fatal(err)
	}
	n, names := map[string]int{}, map[string]bool{}
	for _, f := range faults {
		n[f.feature]++
		if names[f.name] {
			t.Errorf("the fault %q is there twice", f.name)
		}
		names[f.name] = true
		for _, one := range f.touches() {
			if !slices.ContainsFunc(features, func(f conformance.Feature) bool { return f.Name == one }) {
				t.Errorf("%s: there is no feature %q", f.name, one)
			}
		}
	}
	for _, f := range features {
		if want := map[bool]int{true: 1, false: 2}[f.Name == "interpreter"]; n[f.Name] < want {
			t.Errorf("%s has %d faults, want %d", f.Name, n[f.Name], want)
		}
	}
}

func (f fault) touches() []string { return append(strings.Fields(f.also), f.feature) }

// The referee names each fault by a case of its feature, and by none of a feature that the
// fault cannot touch. Without a fault, nothing is wrong behind the proxy.
func TestFaults(t *testing.T) {
	shared.Eventually(t, 5*time.Minute, "a warm pod of the code interpreter", func() (bool, string) {
		pool := &v1alpha1.SandboxPool{}
		err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "code-interpreter-v1"}, pool)
		return err == nil && pool.Status.Idle > pool.Status.UnavailableIdle, fmt.Sprint(pool.Status, err)
	})
	without := map[string]conformance.Verdict{}
	for _, r := range run(t, pass) {
		without[r.Feature+"/"+r.Case] = r.Verdict
		if r.Verdict != conformance.Works && r.Verdict != conformance.Refused {
			t.Errorf("without a fault %s/%s is %s: %s", r.Feature, r.Case, r.Verdict, r.Why)
		}
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			touches := f.touches()
			only := slices.Concat(touches, always)
			slices.Sort(only)
			var named []string
			for _, r := range run(t, f.hop, slices.Compact(only)...) {
				name := r.Feature + "/" + r.Case
				if r.Verdict == without[name] {
					continue
				}
				if !slices.Contains(touches, r.Feature) {
					t.Errorf("%s, which the fault cannot touch, is %s: %s", name, r.Verdict, r.Why)
				}
				if r.Verdict == conformance.Wrong || r.Verdict == conformance.Refused {
					named = append(named, name)
				}
			}
			t.Logf("named: %s", strings.Join(named, " "))
			if !slices.ContainsFunc(named, func(name string) bool { return strings.HasPrefix(name, f.feature+"/") }) {
				t.Errorf("no case of %s is called wrong", f.feature)
			}
		})
	}
}

func run(t *testing.T, through hop, only ...string) []conformance.Result {
	t.Helper()
	b := behind(t, shared.Up.GatewayURL, shared.Up.APIKey, through)
	began := time.Now()
	results, err := conformance.Run(t.Context(), conformance.Options{URL: b.proxy.URL, Key: b.key, Only: only})
	if err != nil {
		t.Error(err)
	}
	took := map[string]int64{}
	for _, r := range results {
		took[r.Feature] += r.Millis
	}
	t.Logf("%s, ms by feature: %v", time.Since(began).Round(time.Millisecond), took)
	return results
}
