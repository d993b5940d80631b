package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A table is searched, sorted and cut on the server.
func TestCut(t *testing.T) {
	rows := func() (all []row) {
		for i := range 120 {
			all = append(all, row{Cells: []string{fmt.Sprintf("id-%03d", i), "Team-A"}, at: time.Unix(int64(i), 0)})
		}
		return all
	}
	for _, tc := range []struct {
		search                 string
		offset, limit          int
		first                  string
		rows, total, offsetNow int
	}{
		{"", 0, 50, "id-119", 50, 120, 0},
		{"", 100, 50, "id-019", 20, 120, 100},
		{"", 500, 50, "id-019", 20, 120, 100}, // the last page
		{"team-a 01", 0, 50, "id-101", 12, 12, 0},
		{"nothing", 50, 50, "", 0, 0, 0},
	} {
		tab := table{Rows: rows()}
		tab.cut(tc.search, tc.offset, tc.limit)
		first := ""
		if len(tab.Rows) > 0 {
			first = tab.Rows[0].Cells[0]
		}
		if first != tc.first || len(tab.Rows) != tc.rows || tab.Total != tc.total || tab.Offset != tc.offsetNow || tab.All != 120 {
			t.Errorf("%q from %d: %d rows from %s, %d in all of %d, offset %d", tc.search, tc.offset, len(tab.Rows), first, tab.Total, tab.All, tab.Offset)
		}
	}
	long := table{Rows: []row{{Cells: []string{strings.Repeat("ä", 2000)}}}}
	if long.cut("", 0, 50); len([]rune(long.Rows[0].Cells[0])) != widest+1 {
		t.Errorf("a cell has %d characters", len([]rune(long.Rows[0].Cells[0])))
	}
}

// Only a running sandbox whose pod can be frozen is, and no more of them than the pool
// allows.
func TestMayFreeze(t *testing.T) {
	type objects struct {
		s    v1alpha1.Sandbox
		pool v1alpha1.SandboxPool
		pod  corev1.Pod
	}
	for name, tc := range map[string]struct {
		change func(*objects)
		frozen int
		want   string
	}{
		"may":           {func(*objects) {}, 1, ""},
		"ended":         {func(o *objects) { o.s.Spec.End = &v1alpha1.End{} }, 0, "has ended"},
		"paused":        {func(o *objects) { o.s.Spec.Paused = true }, 0, "is paused already"},
		"starting":      {func(o *objects) { o.s.Status.Phase = v1alpha1.SandboxStarting }, 0, "does not run"},
		"another's pod": {func(o *objects) { o.pod.UID = "x" }, 0, "pod does not run"},
		"no sandboxd":   {func(o *objects) { o.pod.Spec.Containers[0].Ports = nil }, 0, "cannot be frozen"},
		"too many":      {func(*objects) {}, 2, "as many as it allows"},
		"hibernates alone": {func(o *objects) {
			o.pool.Spec.Pause = &v1alpha1.PoolPause{Modes: []v1alpha1.PauseMode{v1alpha1.PauseHibernate}}
		}, 0, "has no Freeze"},
	} {
		o := objects{}
		o.s = v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "hello"}, Status: v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxRunning}}
		o.s.Spec = v1alpha1.SandboxSpec{Namespace: "ns", Binding: &v1alpha1.Binding{ClaimID: "c", PodName: "p", PodUID: "u"}}
		o.pod.ObjectMeta = metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Annotations: map[string]string{v1alpha1.AnnotationClaim: "c"},
			Labels: map[string]string{v1alpha1.LabelSandboxID: "hello", v1alpha1.LabelPhase: string(v1alpha1.PodRunning)}}
		o.pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}}}}
		o.pool.Spec.MaxPods = 4
		tc.change(&o)
		err := mayFreeze(&o.s, &o.pool, &o.pod, tc.frozen)
		if got := fmt.Sprint(err); (err == nil) != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// The console listens on loopback alone.
func TestListen(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "10.0.0.1:0", "localhost:0", "example.com:80", "127.0.0.1"} {
		if l, err := Listen(address); err == nil {
			l.Close()
			t.Errorf("it listens on %s", address)
		}
	}
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
