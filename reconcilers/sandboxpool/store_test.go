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
	for _, s := range tooMany(all, 3, now.Add(-time.Minute)) {
		names = append(names, s.Name)
	}
	if got := fmt.Sprint(names); got != "[many-4 many-3]" {
		t.Errorf("%s go, want the two oldest ended ones of the full namespace", got)
	}
}

// An ID that a first request may name is not free again before its hold is over,
// however many sandboxes end: at 11 ends a second a cap of 1,000 alone would free it
// after 91 s.
func TestCapDoesNotFreeANameEarly(t *testing.T) {
	const perSecond, most = 11, 1000
	var all []v1alpha1.Sandbox
	for i := range perSecond * 3600 {
		id := fmt.Sprintf("worker-%d", i)
		if i%2 == 1 {
			id = fmt.Sprintf("i%020d", i)
		}
		s := v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id}}
		s.Spec.Namespace, s.Status.Phase = "ns", v1alpha1.SandboxEnded
		s.Spec.End = &v1alpha1.End{At: metav1.NewTime(now.Add(-time.Duration(i) * time.Second / perSecond))}
		all = append(all, s)
	}
	gone := map[string]bool{}
	for _, s := range tooMany(all, most, now.Add(-DefaultNameHold)) {
		gone[s.Name] = true
		if age := now.Sub(s.Spec.End.At.Time); !v1alpha1.GeneratedID(s.Name) && age < DefaultNameHold {
			t.Fatalf("%s goes %v after its end", s.Name, age)
		}
	}
	if want := perSecond/2*int(DefaultNameHold.Seconds()) + most; len(all)-len(gone) < want || len(all)-len(gone) > want+most {
		t.Errorf("%d records stay, want the held names and %d more, about %d", len(all)-len(gone), most, want)
	}
}
