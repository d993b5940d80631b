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
	for _, step := range []struct{ name, patch, refusal string }{
		{"unbound", `{"spec":{"paused":true,"pauseMode":"Freeze","pauseOrder":1}}`, "bound to a pod"},
		{"auto-resume without a pause", `{"spec":{"timeouts":{"autoResume":"Always"}}}`, "needs onTimeout: Pause"},
		{"auto-resume and a kill", `{"spec":{"timeouts":{"autoResume":"Always","onTimeout":"Kill"}}}`, "needs onTimeout: Pause"},
		{"auto-resume", `{"spec":{"timeouts":{"autoResume":"WithMemory","onTimeout":"Pause","lifetime":"90s"}}}`, ""},
		{"a mode and a kill", `{"spec":{"timeouts":{"onTimeoutMode":"Hibernate","onTimeout":"Kill","autoResume":null}}}`, "onTimeoutMode needs onTimeout: Pause"},
		{"no lifetime", `{"spec":{"timeouts":{"lifetime":"0s"}}}`, "not a duration"},
		{"bind", `{"spec":{"binding":{"claimID":"c1","podName":"p","podUID":"u"}}}`, ""},
		{"without a mode", `{"spec":{"paused":true}}`, "paused needs pauseMode"},
		{"a mode that is not there", `{"spec":{"paused":true,"pauseMode":"Sleep"}}`, "Unsupported value"},
		{"a restore of one that runs", `{"spec":{"restore":{"checkpoint":"c"},"pauseMode":"Hibernate","pauseOrder":1}}`, "restore is set in the write"},
		{"an order and no pause", `{"spec":{"pauseOrder":1}}`, "set together"},
		{"without an order", `{"spec":{"paused":true,"pauseMode":"Freeze"}}`, "raise it by 1"},
		{"with a later order", `{"spec":{"paused":true,"pauseMode":"Freeze","pauseOrder":2}}`, "raise it by 1"},
		{"pause", `{"spec":{"paused":true,"pauseMode":"Freeze","pauseOrder":1}}`, ""},
		{"the order alone", `{"spec":{"pauseOrder":2}}`, "raise it by 1"},
		{"another binding while paused", `{"spec":{"binding":{"claimID":"c2","podName":"p2","podUID":"u2"}}}`, "keeps its binding"},
		{"no binding while paused", `{"spec":{"binding":null}}`, "paused"},
		{"another mode without a pause", `{"spec":{"paused":null,"pauseMode":"Hibernate","pauseOrder":2}}`, "pauseMode changes only"},
		{"have the frozen one hibernate, without an order", `{"spec":{"pauseMode":"Hibernate"}}`, "raise it by 1"},
		{"have the frozen one hibernate", `{"spec":{"pauseMode":"Hibernate","pauseOrder":2}}`, ""},
		{"freeze what hibernates", `{"spec":{"pauseMode":"Freeze","pauseOrder":3}}`, "pauseMode changes only"},
		{"resume without a mark", `{"spec":{"paused":null,"pauseMode":null,"pauseOrder":null}}`, "pauseMode stays"},
		{"resume without an order", `{"spec":{"paused":null}}`, "raise it by 1"},
		{"resume with the order before", `{"spec":{"paused":null,"pauseOrder":1}}`, "raise it by 1"},
		{"resume", `{"spec":{"paused":null,"pauseOrder":3}}`, ""},
		{"another change", `{"spec":{"metadata":{"a":"b"}}}`, ""},
		{"take the mark away", `{"spec":{"pauseMode":null}}`, "pauseMode stays"},
		{"take the order away", `{"spec":{"pauseOrder":null}}`, "set together"},
		{"another binding", `{"spec":{"binding":{"claimID":"c2","podName":"p2","podUID":"u2"}}}`, ""},
		{"pause again", `{"spec":{"paused":true,"pauseMode":"Freeze","pauseOrder":4}}`, ""},
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

// A sandbox that hibernates gives its pod up in the write that says what is kept of it,
// which stays as it is until it is restored in another pod.
func TestSandboxHibernation(t *testing.T) {
	made := `{namespace: default, pool: p, paused: true, pauseMode: Hibernate, pauseOrder: 1, restore: {checkpoint: c}}`
	if _, err := create(t, "Sandbox", "", kubetest.Name("s"), made); !apierrors.IsInvalid(err) || !strings.Contains(messages(t, err), "no sandbox is made with it") {
		t.Errorf("made with a restore: %v", err)
	}
	obj, err := create(t, "Sandbox", "", kubetest.Name("s"), sandboxSpec)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ name, patch, refusal string }{
		{"bind", `{"spec":{"binding":{"claimID":"c1","podName":"p","podUID":"u"}}}`, ""},
		{"freeze", `{"spec":{"paused":true,"pauseMode":"Freeze","pauseOrder":1}}`, ""},
		{"give the pod of a frozen one up", `{"spec":{"binding":null,"restore":{"checkpoint":"c"}}}`, "restore needs pauseMode: Hibernate"},
		{"resume", `{"spec":{"paused":null,"pauseOrder":2}}`, ""},
		{"hibernate at once", `{"spec":{"paused":true,"pauseMode":"Hibernate","pauseOrder":3,"binding":null,"restore":{"checkpoint":"c"}}}`, "restore is set in the write"},
		{"hibernate", `{"spec":{"paused":true,"pauseMode":"Hibernate","pauseOrder":3}}`, ""},
		{"restore with its pod", `{"spec":{"restore":{"checkpoint":"c"}}}`, "paused needs pauseMode"},
		{"no checkpoint", `{"spec":{"binding":null,"restore":{"checkpoint":""}}}`, "should match"},
		{"give the pod up", `{"spec":{"binding":null,"restore":{"checkpoint":"c"}}}`, ""},
		{"another checkpoint", `{"spec":{"restore":{"checkpoint":"d"}}}`, "restore cannot change"},
		{"forget what is kept", `{"spec":{"paused":null,"pauseOrder":4,"restore":null}}`, "restore goes only while"},
		{"another pod while paused", `{"spec":{"binding":{"claimID":"c2","podName":"p2","podUID":"u2"}}}`, "a paused sandbox keeps its binding"},
		{"resume without its files", `{"spec":{"paused":null,"pauseOrder":4,"restore":null,"binding":{"claimID":"c2","podName":"p2","podUID":"u2"}}}`, "restore goes only while"},
		{"resume", `{"spec":{"paused":null,"pauseOrder":4,"binding":{"claimID":"c2","podName":"p2","podUID":"u2"}}}`, ""},
		{"pause before the files are there", `{"spec":{"paused":true,"pauseOrder":5}}`, "paused needs pauseMode"},
		{"freeze before the files are there", `{"spec":{"paused":true,"pauseMode":"Freeze","pauseOrder":5}}`, "restore needs pauseMode"},
		{"take the resume back", `{"spec":{"paused":true,"pauseOrder":5,"binding":null}}`, ""},
		{"resume again", `{"spec":{"paused":null,"pauseOrder":6,"binding":{"claimID":"c3","podName":"p3","podUID":"u3"}}}`, ""},
		{"lose the pod and what is kept", `{"spec":{"binding":null,"restore":null}}`, "restore goes only while"},
		{"restored", `{"spec":{"restore":null}}`, ""},
		{"freeze again", `{"spec":{"paused":true,"pauseMode":"Freeze","pauseOrder":7}}`, ""},
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
