package console

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/console/explain"
)

// tables are those of the page, by the names in its addresses.
var tables = map[string]func(s *Server, now time.Time) *table{
	"sandboxes": (*Server).sandboxes,
	"pools":     (*Server).pools,
	"envs":      (*Server).envs,
	"gateways":  (*Server).gatewayTable,
	"snapshots": (*Server).snapshots,
	"events":    (*Server).events,
}

// kindOfTable is what a table is made of.
var kindOfTable = map[string]string{
	"sandboxes": "sandboxes", "pools": "pools", "envs": "envs", "gateways": "leases", "snapshots": "checkpoints", "events": "events",
}

func (s *Server) sandboxes(now time.Time) *table {
	t := &table{Columns: []string{"ID", "State", "Pool", "Owner", "Age", "Last use", "Pod", "Why"}}
	for _, o := range objects[*v1alpha1.Sandbox](s.kinds["sandboxes"]) {
		r := row{Key: o.Name, Sandbox: o.Name, at: v1alpha1.SandboxCreatedAt(o)}
		pod, why, used := "", "", time.Time{}
		if b := o.Spec.Binding; b != nil {
			pod = b.PodName
		}
		if o.Status.LastActive != nil {
			used = o.Status.LastActive.Time
		}
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.SandboxConditionPaused)
		switch e := o.Spec.End; {
		case e != nil:
			why = string(e.Reason) + ": " + e.Message
			if e.Reason == v1alpha1.EndFailed || e.Reason == v1alpha1.EndStartupTimeout {
				r.Level = string(explain.Bad)
			}
		case o.Spec.Paused && c != nil:
			why = c.Reason + ": " + c.Message
		case o.Spec.Binding == nil:
			why, r.Level = "waits for a pod", string(explain.Warn)
		}
		pool := o.Spec.Namespace + "/" + o.Spec.Pool
		if o.Spec.Env != "" {
			pool += " (env " + o.Spec.Env + ")"
		}
		owner := cmp.Or(o.Spec.Team, "–")
		if key := o.Annotations[v1alpha1.AnnotationOwner]; key != "" {
			owner += " (key " + key + ")"
		}
		r.Cells = []string{o.Name, string(cmp.Or(o.Status.Phase, v1alpha1.SandboxPending)), pool, owner, age(now, o.CreationTimestamp.Time), age(now, used), pod, why}
		t.Rows = append(t.Rows, r)
	}
	return t
}

func (s *Server) pools(time.Time) *table {
	t := &table{Columns: []string{"Pool", "State", "Stock", "Waiting", "Running", "Paused", "Warming", "Limit", "Why"}}
	for _, p := range objects[*v1alpha1.SandboxPool](s.kinds["pools"]) {
		st := &p.Status
		limit := "none"
		if p.Spec.MaxPods > 0 {
			limit = strconv.Itoa(int(p.Spec.MaxPods))
		}
		r := row{Key: p.Namespace + "/" + p.Name}
		why := trueMessage(st.Conditions, v1alpha1.PoolConditionDegraded, metav1.ConditionTrue)
		switch {
		case why != "" || st.WaitingClaims > 0:
			r.Level = string(explain.Bad)
		case st.Idle-st.UnavailableIdle == 0 && p.Spec.Replicas > 0:
			r.Level = string(explain.Warn)
		}
		if why == "" {
			why = trueMessage(st.Conditions, v1alpha1.PoolConditionAvailable, metav1.ConditionFalse)
		}
		r.Cells = []string{
			p.Namespace + "/" + p.Name, string(st.Phase), fmt.Sprintf("%d of %d", st.Idle-st.UnavailableIdle, p.Spec.Replicas), n(st.WaitingClaims),
			n(st.Running + st.Starting), n(st.Paused), n(st.Warming), limit, why,
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

func n(i int32) string { return strconv.Itoa(int(i)) }

// trueMessage is reason and message of a condition that has the status.
func trueMessage(conditions []metav1.Condition, kind string, status metav1.ConditionStatus) string {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil || c.Status != status {
		return ""
	}
	return c.Reason + ": " + c.Message
}

func (s *Server) envs(time.Time) *table {
	t := &table{Columns: []string{"Env", "Ready", "Template", "Idle", "Running", "Waiting", "Members", "Why"}}
	for _, e := range objects[*v1alpha1.SandboxEnv](s.kinds["envs"]) {
		var members []string
		for _, c := range e.Status.Clusters {
			for _, m := range c.ObservedMembers {
				members = append(members, fmt.Sprintf("%s/%s %s %d of %d", c.ClusterID, m.Name, m.State, m.Idle, m.Replicas))
			}
		}
		r, ready := row{Key: e.Namespace + "/" + e.Name}, "Unknown"
		if c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.EnvConditionReady); c != nil {
			ready = string(c.Status)
		}
		why := cmp.Or(trueMessage(e.Status.Conditions, v1alpha1.EnvConditionTemplateConsistent, metav1.ConditionFalse),
			trueMessage(e.Status.Conditions, v1alpha1.EnvConditionReady, metav1.ConditionFalse))
		if why != "" {
			r.Level = string(explain.Warn)
		}
		st := &e.Status
		r.Cells = []string{e.Namespace + "/" + e.Name, ready, e.Spec.TemplateRef.Name, n(st.Idle), n(st.Running), n(st.Waiting), strings.Join(members, ", "), why}
		t.Rows = append(t.Rows, r)
	}
	return t
}

func (s *Server) gatewayTable(now time.Time) *table {
	t := &table{Columns: []string{"Gateway", "Lease renewed", "Routes", "Waiting", "Fast path", "Fences behind", "Mean fence", "Certificate ends in", "Why"}}
	in := s.installation(now)
	for _, l := range objects[*coordinationv1.Lease](s.kinds["leases"]) {
		m, asked := in.Gateways[l.Name]
		r := row{Key: l.Name, Cells: []string{explain.GatewayName(l), age(now, now.Add(-explain.LeaseAge(l, now))) + " ago", "?", "?", "?", "?", "?", "?", ""}}
		switch {
		case asked && m.Err == nil:
			certificate := "–"
			if m.CertificateDays >= 0 {
				certificate = fmt.Sprintf("%d days", m.CertificateDays)
			}
			copy(r.Cells[2:], []string{strconv.Itoa(m.Routes), strconv.Itoa(m.Waiting), string(m.FastPath), strconv.Itoa(m.FencesBehind), m.FenceMean.Round(10 * time.Microsecond).String(), certificate})
		case asked:
			r.Cells[8] = m.Err.Error()
		}
		for i, f := range explain.Gateway(l, in) {
			if i == 0 {
				r.Level, r.Cells[8] = string(f.Level), f.Text // the worst
			} else {
				r.Cells[8] += "; " + f.Text
			}
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

func (s *Server) snapshots(now time.Time) *table {
	t := &table{Columns: []string{"Name", "Of sandbox", "State", "For", "Size", "Age", "Pool", "Why"}}
	for _, c := range objects[*v1alpha1.Checkpoint](s.kinds["checkpoints"]) {
		r := row{Key: c.Namespace + "/" + c.Name, at: c.CreationTimestamp.Time, Sandbox: c.Spec.SandboxID}
		if c.Status.Phase == v1alpha1.CheckpointFailed {
			r.Level = string(explain.Bad)
		}
		name := c.Namespace + "/" + c.Name
		if len(c.Spec.Names) > 0 {
			name += " (" + strings.Join(c.Spec.Names, ", ") + ")"
		}
		r.Cells = []string{name, c.Spec.SandboxID, string(cmp.Or(c.Status.Phase, v1alpha1.CheckpointPending)), string(c.Spec.Cause), size(c.Status.Bytes), age(now, c.CreationTimestamp.Time), c.Status.Pool, c.Status.Message}
		t.Rows = append(t.Rows, r)
	}
	return t
}

func size(bytes int64) string {
	switch {
	case bytes == 0:
		return "–"
	case bytes < 1<<20:
		return fmt.Sprintf("%d kB", (bytes+1023)>>10)
	}
	return fmt.Sprintf("%d MB", bytes>>20)
}

// events are the warnings about our objects and about pods of pools.
func (s *Server) events(now time.Time) *table {
	t := &table{Columns: []string{"Last", "Reason", "About", "Times", "Message"}}
	pools := objects[*v1alpha1.SandboxPool](s.kinds["pools"])
	for _, e := range objects[*corev1.Event](s.kinds["events"]) {
		about := e.InvolvedObject
		if !strings.HasPrefix(about.APIVersion, v1alpha1.GroupVersion.Group+"/") && !ofPools(about, pools) {
			continue
		}
		times := max(e.Count, 1)
		if e.Series != nil {
			times = max(times, e.Series.Count)
		}
		r := row{Key: e.Namespace + "/" + e.Name, at: explain.Happened(e), Cells: []string{age(now, explain.Happened(e)), e.Reason, about.Kind + " " + strings.TrimPrefix(about.Namespace+"/"+about.Name, "/"), n(times), e.Message}}
		if about.Kind == "Sandbox" {
			r.Sandbox = about.Name
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// ofPools reports whether a pod is named as those of a pool are.
func ofPools(about corev1.ObjectReference, pools []*v1alpha1.SandboxPool) bool {
	if about.Kind != "Pod" {
		return false
	}
	for _, p := range pools {
		if p.Namespace == about.Namespace && strings.HasPrefix(about.Name, p.Name+"-") {
			return true
		}
	}
	return false
}
