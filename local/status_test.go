package local

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// What is wrong with an env is said, and fails the command.
func TestStatusShowsEnvs(t *testing.T) {
	r := report{now: time.Now(), Running: Running{Gateways: []GatewayInfo{{}}}}
	var none, some strings.Builder
	if err := r.write(&none); err != nil || strings.Contains(none.String(), "ENV") {
		t.Errorf("without envs: %v\n%s", err, none.String())
	}
	good := v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "good"}}
	good.Spec.TemplateRef.Name = "t"
	good.Status = v1alpha1.SandboxEnvStatus{Members: 2, Idle: 3, Running: 4, Waiting: 5, Conditions: []metav1.Condition{
		{Type: v1alpha1.EnvConditionReady, Status: metav1.ConditionTrue}, {Type: v1alpha1.EnvConditionTemplateConsistent, Status: metav1.ConditionTrue},
	}}
	bad := v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bad"}}
	bad.Status.Conditions = []metav1.Condition{{Type: v1alpha1.EnvConditionTemplateConsistent, Status: metav1.ConditionFalse, Message: "member m: not on a Sunday"}}
	r.envs = []v1alpha1.SandboxEnv{good, bad}
	if err := r.write(&some); err != nil || !strings.Contains(strings.Join(strings.Fields(some.String()), " "), "ns/good t 2 3 4 5 True") {
		t.Errorf("with envs: %v\n%s", err, some.String())
	}
	if got := strings.Join(r.wrong(), "; "); !strings.Contains(got, "the env ns/bad: member m: not on a Sunday") || strings.Contains(got, "good") {
		t.Errorf("wrong: %q", got)
	}
}
