package console

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/console/explain"
)

// overview is what the page's first tab shows.
type overview struct {
	// Away says since when the API server does not answer; empty if it does.
	Away    string `json:"away,omitempty"`
	AwayWhy string `json:"awayWhy,omitempty"`
	// Reading are the kinds that are not listed yet.
	Reading  []string          `json:"reading,omitempty"`
	Findings []explain.Finding `json:"findings"`
	// Phases counts sandboxes by phase.
	Phases map[v1alpha1.SandboxPhase]int `json:"phases"`
	Idle   int                           `json:"idle"`
	Wanted int                           `json:"wanted"`
	// Waiting counts claims that wait; Recent the sandboxes that first requests made within
	// the last minute.
	Waiting int `json:"waiting"`
	Recent  int `json:"recent"`
	// MayPatch: the user may end, pause and resume sandboxes; MayOpen: open their ports.
	MayPatch bool `json:"mayPatch"`
	MayOpen  bool `json:"mayOpen"`
}

func (s *Server) overview(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	o := overview{Phases: map[v1alpha1.SandboxPhase]int{}}
	if since, why := s.reach.away(); !since.IsZero() {
		o.Away, o.AwayWhy = since.UTC().Format(time.RFC3339), why
	}
	in := s.installation(now)
	for _, key := range slices.Sorted(maps.Keys(s.kinds)) {
		if k := s.kinds[key]; !k.informer.HasSynced() && k.refusal() == "" {
			o.Reading = append(o.Reading, k.name)
			if key == "leases" {
				in.Leases = nil // that none is known says nothing yet
			}
		}
	}
	for _, sb := range in.Sandboxes {
		o.Phases[cmp.Or(sb.Status.Phase, v1alpha1.SandboxPending)]++
		if sb.Spec.FirstRequest && now.Sub(sb.CreationTimestamp.Time) < time.Minute {
			o.Recent++
		}
	}
	for i := range in.Pools {
		p := &in.Pools[i]
		o.Idle += int(p.Status.Idle - p.Status.UnavailableIdle)
		o.Wanted += int(p.Spec.Replicas)
		o.Waiting += int(p.Status.WaitingClaims)
	}
	o.Findings = explain.Check(in)
	s.mu.Lock()
	o.MayPatch, o.MayOpen = s.may.patch, s.may.open
	s.mu.Unlock()
	writeJSON(w, o)
}

// installation is what is known without asking anyone. Its leases are nil if the user may
// not list them.
func (s *Server) installation(now time.Time) explain.Installation {
	in := explain.Installation{Now: now}
	for _, key := range slices.Sorted(maps.Keys(s.kinds)) {
		if why := s.kinds[key].refusal(); why != "" {
			in.Unread = append(in.Unread, s.kinds[key].name+" cannot be read: "+why)
		}
	}
	for _, p := range objects[*v1alpha1.SandboxPool](s.kinds["pools"]) {
		in.Pools = append(in.Pools, *p)
	}
	for _, e := range objects[*v1alpha1.SandboxEnv](s.kinds["envs"]) {
		in.Envs = append(in.Envs, *e)
	}
	for _, c := range objects[*v1alpha1.Checkpoint](s.kinds["checkpoints"]) {
		in.Checkpoints = append(in.Checkpoints, *c)
	}
	in.Sandboxes = objects[*v1alpha1.Sandbox](s.kinds["sandboxes"])
	if s.kinds["leases"].refusal() == "" {
		in.Leases = []coordinationv1.Lease{}
		for _, l := range objects[*coordinationv1.Lease](s.kinds["leases"]) {
			in.Leases = append(in.Leases, *l)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	in.Gateways = maps.Clone(s.gateways)
	if s.unread != "" {
		in.Unread = append(in.Unread, "gateways cannot be asked: "+s.unread)
	}
	return in
}

var idPattern = regexp.MustCompile(v1alpha1.IDPattern)

const notAnID = "this is no sandbox ID"

// explain is the text that `sandlane explain ID` prints, with what the page needs to act.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !idPattern.MatchString(id) {
		http.Error(w, notAnID, http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	facts, err := s.read.Sandbox(ctx, id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	answer := struct {
		Text   string `json:"text"`
		UID    string `json:"uid"`
		Over   bool   `json:"over"`
		Paused bool   `json:"paused"`
	}{Text: explain.Sandbox(facts).Text(), Over: true}
	if sb := facts.Sandbox; sb != nil {
		answer.UID, answer.Over, answer.Paused = string(sb.UID), sb.Spec.End != nil, sb.Spec.Paused
	}
	writeJSON(w, answer)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a page that has gone
}
