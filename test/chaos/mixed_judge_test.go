package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

const (
	// endLimit is how long the last sandboxes may take to be released, fenced and Ended once
	// there are no more requests: a sandbox that never got a pod lives for its startup
	// timeout.
	endLimit = v1alpha1.DefaultStartupTimeout + time.Minute
	// sweepLimit is how long a claimed pod that no sandbox names may live: two sweeps a
	// minute apart, and its end.
	sweepLimit = 150 * time.Second
	// useAge is how old the use of an open connection can be: two ticks.
	useAge = 2 * time.Second
)

// served checks that every gateway serves every sandbox of a user, now that no process is
// harmed.
func (m *mixture) served(all *users) {
	m.t.Helper()
	for _, u := range all.all {
		u.asks(u.current())
	}
	began := time.Now()
	shared.Eventually(m.t, recoveryLimit, "every sandbox to be served by every gateway", func() (bool, string) {
		var not []string
		for _, u := range all.all {
			if u.servedBy() < len(shared.Up.Gateways) {
				not = append(not, u.current()+u.unserved())
			}
		}
		return len(not) == 0, strings.Join(not, " ")
	})
	m.note("%s all sandboxes are served by all gateways", m.span(began, time.Now()))
}

// allEnded checks that every sandbox of the run ends by itself, now that there are no more
// requests: the claim of one that does not end was lost.
func (m *mixture) allEnded() {
	m.t.Helper()
	if err := writes.EndSandbox(m.ctx, shared.Client, m.probe, v1alpha1.EndReleased, "the run is over"); err != nil {
		m.t.Fatal(err)
	}
	began := time.Now()
	var left []string
	for {
		var list v1alpha1.SandboxList
		if err := shared.Client.List(m.ctx, &list, client.MatchingFields{v1alpha1.FieldNamespace: m.ns}); err != nil {
			m.t.Fatal(err)
		}
		left = nil
		for _, s := range list.Items {
			if s.Status.Phase != v1alpha1.SandboxEnded || s.Status.Address != "" && s.Status.FencedAt == nil {
				left = append(left, fmt.Sprintf("sandbox %s is %s, binding %+v, end %+v, fenced %v", s.Name, s.Status.Phase, s.Spec.Binding, s.Spec.End, s.Status.FencedAt))
			}
		}
		if len(left) == 0 || time.Since(began) > endLimit {
			break
		}
		if err := wait(m.ctx, 100*time.Millisecond); err != nil {
			m.t.Fatal(err)
		}
	}
	m.lost = append(m.lost, left...)
	m.note("%s all sandboxes end", m.span(began, time.Now()))
}

// onlyStock checks that the pools have only their idle pods again. It counts further pods,
// which are leaked.
func (m *mixture) onlyStock() {
	m.t.Helper()
	began, want := time.Now(), map[string]int{"first": firstStock, "made": madeStock, "resting": restingStock, "kept": 1}
	for {
		idle, leaked := map[string]int{}, []string{}
		for _, p := range shared.PodsOf(m.t, m.ns) {
			if v1alpha1.PhaseOf(&p) == v1alpha1.PodIdle {
				idle[p.Labels[v1alpha1.LabelPool]]++
			} else {
				leaked = append(leaked, describe(&p))
			}
		}
		if maps.Equal(idle, want) && len(leaked) == 0 {
			m.note("%s the pools get their stock, and have nothing else", m.span(began, time.Now()))
			return
		}
		if time.Since(began) > sweepLimit {
			m.t.Errorf("LEAKED PODS %d: the pools have %v idle pods, want %v, and\n%s", len(leaked), idle, want, strings.Join(leaked, "\n"))
			return
		}
		if err := wait(m.ctx, 100*time.Millisecond); err != nil {
			m.t.Fatal(err)
		}
	}
}

func describe(p *corev1.Pod) string {
	return fmt.Sprintf("pod %s is %s, sandbox %q, claim %q, deleted %v", p.Name, v1alpha1.PhaseOf(p), p.Labels[v1alpha1.LabelSandboxID], p.Annotations[v1alpha1.AnnotationClaim], p.DeletionTimestamp)
}

// judge checks that no answer came from a wrong pod, no sandbox had two pods and no pod two
// sandboxes, no sandbox in use was released, no paused sandbox answered, no file of a
// hibernated sandbox was lost, and no claim was left without an outcome; and that enough was
// done of each kind.
func (m *mixture) judge(took time.Duration, lanes [][]string, least enough) {
	t := m.t
	t.Helper()
	m.load.judge() // answers from wrong pods, pods of two sandboxes, addresses given on too early
	var early []string
	for _, a := range m.load.answers {
		if a.ID == m.probe {
			continue
		}
		if err := record.JudgeRelease(a, mixedIdle); err != nil {
			early = append(early, err.Error())
		}
	}
	early = append(early, m.cutShort()...)
	for _, id := range m.created {
		if record.Pods(id) == 0 {
			m.lost = append(m.lost, "the REST API said that it made "+id+", and no pod was ever claimed for it")
		}
	}
	doubled := record.Doubled(m.began)
	for what, list := range map[string][]string{"DOUBLE CLAIM": doubled, "ANSWERED WHILE PAUSED": m.answeredWhilePaused(), "FILE LOST": m.lostFiles, "RELEASED IN USE": early, "LOST CLAIM": m.lost} {
		for i, line := range list {
			if i == 10 {
				t.Errorf("… and %d more", len(list)-i)
				break
			}
			t.Errorf("%s: %s", what, line)
		}
	}
	t.Logf("the run:\n%s", strings.Join(m.notes, "\n"))
	ends, applied := record.Ends(m.began), record.Applied(m.began)
	did := map[string]int{
		"answers": len(m.load.answers), "claims": applied, "idle releases": ends[v1alpha1.EndIdleTimeout],
		"ended": m.count["ended"], "killed": m.count["killed"], "deleted": m.count["deleted"], "created": m.count["created"],
		"paused": m.count["paused"], "hibernated": m.count["hibernated"],
		"asked for again": m.count["asked for again and kept"] + m.count["asked for again and over"],
	}
	t.Logf("%d claims doubled, %d sandboxes released in use, %d claims lost, in %v; %d watches of the record began again",
		len(doubled), len(early), len(m.lost), took.Round(time.Second), record.Gaps())
	t.Logf("%d answers of %d requests, %d claims, ends %v; users: %s; %d WebSockets", len(m.load.answers), sum(m.load.status), applied, ends, counts(m.count), len(m.opened))
	for _, kind := range slices.Sorted(maps.Keys(m.faults.done)) {
		t.Logf("fault: %-55s %3d times, serving again after %v at most, %d requests refused", kind, m.faults.done[kind], m.faults.slowest[kind].Round(time.Millisecond), m.faults.met[kind])
	}
	// The harm falls between the steps of some pauses only.
	if failed, done := m.count["pause refused with 500"], did["paused"]+did["hibernated"]; failed > done {
		t.Errorf("%d pauses are answered with 500, and %d are carried out", failed, done)
	}
	m.least(did, lanes, least)
}

// least fails the run if it has done too little to prove anything.
func (m *mixture) least(did map[string]int, lanes [][]string, least enough) {
	m.t.Helper()
	for what, want := range map[string]int{
		"answers": least.answers, "claims": least.claims, "idle releases": least.idle, "ended": least.ended, "killed": least.killed,
		"deleted": least.deleted, "created": least.created, "paused": least.paused, "hibernated": least.hibernated, "asked for again": least.returns,
	} {
		if did[what] < want {
			m.t.Errorf("that is too little: %s %d, want %d", what, did[what], want)
		}
	}
	for _, kind := range slices.Concat(lanes...) {
		want := least.faults
		if strings.HasSuffix(kind, pastLease) {
			want = least.long
		}
		if m.faults.done[kind] < want {
			m.t.Errorf("that is too little: %s %d times, want %d", kind, m.faults.done[kind], want)
		}
		// A gateway that is cut off for a moment, or only from the controller, may still serve.
		if bites := kind == killed || kind == stopped || strings.HasSuffix(kind, pastLease); bites && m.faults.met[kind] == 0 {
			m.t.Errorf("%s: it met no request", kind)
		}
	}
	if away := slices.Contains(slices.Concat(lanes...), killedAPI); away && record.Gaps() == 0 {
		m.t.Error("no watch of the record broke: the API server was not away")
	}
}

// cutShort lists the sandboxes that were released for idleness while a WebSocket was open. It
// leaves out WebSockets through a gateway that was harmed for longer than its lease: the
// controller may have revoked the lease and not have known of the WebSocket.
func (m *mixture) cutShort() (out []string) {
	for _, s := range m.opened {
		for _, c := range record.Claims(s.id) {
			if c.Reason != v1alpha1.EndIdleTimeout || c.Ended.Add(time.Second).Before(s.opened) ||
				!c.Ended.Add(time.Second+useAge).Before(s.closed.Add(mixedIdle)) {
				continue
			}
			given := slices.ContainsFunc(m.faults.away, func(a absence) bool {
				return a.gateway == s.gateway && a.from.Before(c.Ended.Add(time.Second)) && a.to.After(s.opened)
			})
			if !given {
				out = append(out, fmt.Sprintf("%s was released at %v, and its WebSocket through %s was open from %v to %v", s.id, c.Ended, s.gateway, s.opened, s.closed))
			}
		}
	}
	return out
}

func sum(m map[string]int) (n int) {
	for _, of := range m {
		n += of
	}
	return n
}
