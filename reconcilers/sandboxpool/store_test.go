package sandboxpool

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func TestObjectStoreKeepsForItsTTL(t *testing.T) {
	s := &v1alpha1.Sandbox{Spec: v1alpha1.SandboxSpec{End: &v1alpha1.End{At: metav1.NewTime(now)}}}
	for _, tt := range []struct{ ttl, age, want time.Duration }{
		{0, 0, DefaultRecordTTL}, {time.Minute, 20 * time.Second, 40 * time.Second}, {time.Minute, time.Minute, 0}, {time.Minute, time.Hour, 0},
	} {
		if got := (&ObjectStore{TTL: tt.ttl}).Keep(s, now.Add(tt.age)); got != tt.want {
			t.Errorf("TTL %v, age %v: %v, want %v", tt.ttl, tt.age, got, tt.want)
		}
	}
}

func TestCapTakesTheOldestRecordsOfANamespace(t *testing.T) {
	var all []v1alpha1.Sandbox
	add := func(ns, name string, phase v1alpha1.SandboxPhase, ago time.Duration) *v1alpha1.Sandbox {
		s := v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SandboxSpec{Namespace: ns}}
		s.Status.Phase = phase
		if ago > 0 {
			s.Spec.End = &v1alpha1.End{At: metav1.NewTime(now.Add(-ago))}
		}
		all = append(all, s)
		return &all[len(all)-1]
	}
	for i := range 5 {
		add("many", fmt.Sprint("many-", i), v1alpha1.SandboxEnded, time.Duration(i+1)*time.Hour)
	}
	add("few", "few", v1alpha1.SandboxEnded, 100*time.Hour)
	add("many", "running", v1alpha1.SandboxRunning, 0)
	add("many", "unfenced", v1alpha1.SandboxEnding, 200*time.Hour)
	at := metav1.NewTime(now)
	add("many", "going", v1alpha1.SandboxEnded, 300*time.Hour).DeletionTimestamp = &at
	var names []string
	for _, s := range tooMany(all, 3) {
		names = append(names, s.Name)
	}
	if got := fmt.Sprint(names); got != "[many-4 many-3]" {
		t.Errorf("%s go, want the two oldest ended ones of the full namespace", got)
	}
}
