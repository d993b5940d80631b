package crds_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/test/kubetest"
)

// A pause says what is kept, keeps its pod, and leaves a mark.
func TestSandboxPause(t *testing.T) {
	obj, err := create(t, "Sandbox", "", kubetest.Name("s"), sandboxSpec)
	if err != nil {
		t.Fatal(err)
	}
	const paused = `{"spec":{"paused":true,"pauseMode":"Freeze"}}`
	for _, step := range []struct{ name, patch, refusal string }{
		{"unbound", paused, "bound to a pod"},
		{"auto-resume without a pause", `{"spec":{"timeouts":{"autoResume":"Always"}}}`, "needs onTimeout: Pause"},
		{"auto-resume and a kill", `{"spec":{"timeouts":{"autoResume":"Always","onTimeout":"Kill"}}}`, "needs onTimeout: Pause"},
		{"auto-resume", `{"spec":{"timeouts":{"autoResume":"WithMemory","onTimeout":"Pause","lifetime":"90s"}}}`, ""},
		{"no lifetime", `{"spec":{"timeouts":{"lifetime":"0s"}}}`, "not a duration"},
		{"bind", `{"spec":{"binding":{"claimID":"c1","podName":"p","podUID":"u"}}}`, ""},
		{"without a mode", `{"spec":{"paused":true}}`, "paused needs pauseMode"},
		{"a mode that is not there", `{"spec":{"paused":true,"pauseMode":"Hibernate"}}`, "Unsupported value"},
		{"pause", paused, ""},
		{"another binding while paused", `{"spec":{"binding":{"claimID":"c2","podName":"p2","podUID":"u2"}}}`, "keeps its binding"},
		{"no binding while paused", `{"spec":{"binding":null}}`, "paused"},
		{"resume without a mark", `{"spec":{"paused":null,"pauseMode":null}}`, "pauseMode stays"},
		{"resume", `{"spec":{"paused":null}}`, ""},
		{"take the mark away", `{"spec":{"pauseMode":null}}`, "pauseMode stays"},
		{"another binding", `{"spec":{"binding":{"claimID":"c2","podName":"p2","podUID":"u2"}}}`, ""},
		{"pause again", paused, ""},
		{"end while paused", `{"spec":{"end":{"reason":"Released","at":"2026-01-01T00:00:00Z"}}}`, ""},
	} {
		err := kubetest.Client(t).Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(step.patch)))
		if step.refusal == "" && err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if step.refusal != "" && (!apierrors.IsInvalid(err) || !strings.Contains(messages(t, err), step.refusal)) {
			t.Errorf("%s: %v, want %q", step.name, err, step.refusal)
		}
	}
}
