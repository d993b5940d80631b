package activation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/faults"
)

// judgeAnswers checks that each request got one answer by its deadline: a pod, or an error of
// this package.
func (s *storm) judgeAnswers() {
	for _, a := range s.asks {
		if a.answers != 1 {
			s.t.Errorf("%s got %d answers", a.id, a.answers)
		}
		if late := a.to.Sub(a.from) - a.patience; late > stormLate {
			s.t.Errorf("%s was answered %v late: %v", a.id, late, a.err)
		}
		// A claim that cannot be settled ends in unavailable, also with time left.
		switch o := outcomeOf(a.err); {
		case o == "success", o == "unavailable", a.patience == hurried && (o == "not_ready" || o == "no_capacity"):
		case o == "no_capacity" && s.struck(a) >= unlucky:
			// It had pods and lost each to a fault, and waited for the next one when
			// its time was over.
			if again := (*RetryError)(nil); !errors.As(a.err, &again) {
				s.t.Errorf("%s is not told to try again: %v", a.id, a.err)
			}
		default:
			s.t.Errorf("%s, after %v: %v\n%s", a.id, a.to.Sub(a.from), a.err, s.story(a.id))
		}
	}
}

// unlucky is how many faults, of up to some seconds each, may use up the time of a
// patient request.
const unlucky = 6

// struck is how many faults befell the writes of a request's gateway for its
// sandbox meanwhile.
func (s *storm) struck(a *ask) int {
	n := 0
	for _, x := range s.transports[a.gateway].Strikes() {
		if x.Sandbox == a.id && !x.At.Before(a.from) && !x.At.After(a.to) {
			n++
		}
	}
	return n
}

// story returns what happened to a sandbox's writes, for a person who looks for the cause of
// a failure.
func (s *storm) story(id string) string {
	var b strings.Builder
	for _, a := range s.asks {
		if a.id == id {
			fmt.Fprintf(&b, "%s–%s gateway %d asked: %v\n", a.from.Format(clock), a.to.Format(clock), a.gateway, a.err)
		}
	}
	for g, tr := range s.transports {
		for _, x := range tr.Strikes() {
			if x.Sandbox == id {
				fmt.Fprintf(&b, "%s gateway %d %s %d on %s met %q: %s\n", x.At.Format(clock), g, x.Kind, x.Nth, x.Object, x.Fault, x.Fate)
			}
		}
	}
	return b.String()
}

const clock = "15:04:05.000"

// judgeObjects lists the objects and checks that each sandbox has one pod, each pod has one
// sandbox, and every route that any request got leads to that pod.
func (s *storm) judgeObjects() {
	sandboxes := &v1alpha1.SandboxList{}
	if err := s.c.List(s.t.Context(), sandboxes); err != nil {
		s.t.Fatal(err)
	}
	carriers := make(map[string][]*corev1.Pod) // pods that can be reached and carry the sandbox's name
	pods := s.pods()
	for i := range pods {
		pod := &pods[i]
		id := pod.Labels[v1alpha1.LabelSandboxID]
		switch v1alpha1.PhaseOf(pod) {
		case v1alpha1.PodStarting, v1alpha1.PodRunning:
			carriers[id] = append(carriers[id], pod)
		case v1alpha1.PodIdle:
			if id != "" || pod.Annotations[v1alpha1.AnnotationClaim] != "" {
				s.t.Errorf("pod %s is idle and carries a claim of %s", pod.Name, id)
			}
		}
	}
	named, final := make(map[string]string), make(map[string]*corev1.Pod)
	for i := range sandboxes.Items {
		sb := &sandboxes.Items[i]
		if sb.Spec.Namespace != s.ns {
			continue
		}
		on := carriers[sb.Name]
		delete(carriers, sb.Name)
		if len(on) != 1 || !v1alpha1.Backs(on[0], sb) || claimStateOf(sb, on[0]) != claimRuns {
			s.t.Errorf("sandbox %s, bound to %+v, is on %d pods", sb.Name, sb.Spec.Binding, len(on))
			continue
		}
		if other := named[sb.Spec.Binding.PodUID]; other != "" {
			s.t.Errorf("sandboxes %s and %s name one pod", other, sb.Name)
		}
		named[sb.Spec.Binding.PodUID], final[sb.Name] = sb.Name, on[0]
	}
	for id, on := range carriers {
		s.t.Errorf("%d pods carry claims of %q, which is no sandbox", len(on), id)
	}
	if len(final) != s.plan.claims {
		s.t.Errorf("%d of %d sandboxes have their pod", len(final), s.plan.claims)
	}
	s.judgeRoutes(final)
}

func (s *storm) judgeRoutes(final map[string]*corev1.Pod) {
	routes := 0
	for _, a := range s.asks {
		pod := final[a.id]
		if pod == nil {
			continue // reported already
		}
		if a.podUID != "" && a.podUID != string(pod.UID) {
			s.t.Errorf("%s was answered with pod %s, and is on %s", a.id, a.podUID, pod.UID)
		}
		for _, g := range s.gateways {
			if r := g.cache.Get(a.id); r != nil {
				routes++
				if r.PodUID != string(pod.UID) || r.Addr.String() != pod.Status.PodIP || r.ClaimID != pod.Annotations[v1alpha1.AnnotationClaim] {
					s.t.Errorf("%s is on %s; route %+v", a.id, pod.UID, r)
				}
			}
		}
	}
	if routes < s.plan.claims {
		s.t.Errorf("%d routes for %d sandboxes", routes, s.plan.claims)
	}
}

// judgeFaults counts the faults, and how the writes and requests that met them ended. It
// prints the counts and checks that each outcome happened often enough.
func (s *storm) judgeFaults() {
	asks := make(map[string][]*ask)
	for _, a := range s.asks {
		asks[a.id] = append(asks[a.id], a)
	}
	kinds := []faults.Kind{faults.Create, faults.Bind, faults.Claim, faults.Stop, faults.Unbind}
	fates := []faults.Fate{faults.NeverSent, faults.Applied, faults.Refused, faults.Failed, faults.OnItsWay}
	outcomes := []string{"success", "unavailable", "not_ready", "no_capacity"}
	// What cannot be asked of each fault is shown, and not counted:
	//   - unbind: only of a request whose pod was lost and that found no other,
	//     and there is stock.
	//   - not_ready: of a request that writes nothing itself within its time, and
	//     follows what another's writes met.
	//   - no_capacity: of one that waits for a pod, and then writes nothing.
	counted := func(what string) bool {
		return !slices.Contains([]string{string(faults.Unbind), "not_ready", "no_capacity"}, what)
	}
	counts := make(map[string]int)
	for g, tr := range s.transports {
		for _, x := range tr.Strikes() {
			counts[fmt.Sprint(x.Fault, x.Kind)]++
			counts[fmt.Sprint(x.Fault, x.Fate)]++
			for _, a := range asks[x.Sandbox] {
				if a.gateway == g && !x.At.Before(a.from) && x.At.Before(a.to) {
					counts[x.Fault.String()+outcomeOf(a.err)]++
				}
			}
		}
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "fault")
	for _, k := range kinds {
		fmt.Fprint(w, "\t", k)
	}
	fmt.Fprint(w, "\t| write: ", fates[0])
	for _, f := range fates[1:] {
		fmt.Fprint(w, "\t", f)
	}
	fmt.Fprint(w, "\t| request: ", outcomes[0])
	for _, o := range outcomes[1:] {
		fmt.Fprint(w, "\t", o)
	}
	fmt.Fprintln(w)
	for _, f := range faults.All() {
		fmt.Fprint(w, f)
		for _, k := range kinds {
			s.cell(w, f, string(k), counts[fmt.Sprint(f, k)], counted(string(k)))
		}
		met := 0
		for _, fate := range fates {
			s.cell(w, f, string(fate), counts[fmt.Sprint(f, fate)], canBe(f, fate))
			met += counts[fmt.Sprint(f, fate)]
		}
		if met == 0 {
			s.t.Errorf("%s: no write met it", f)
		}
		for _, o := range outcomes {
			s.cell(w, f, o, counts[f.String()+o], counted(o))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // to memory
	s.t.Logf("\n%s", out.String())
}

func (s *storm) cell(w *tabwriter.Writer, f faults.Fault, what string, n int, must bool) {
	fmt.Fprint(w, "\t", n)
	if must && n < s.plan.enough {
		s.t.Errorf("%s, %s: only %d", f, what, n)
	}
}

// canBe reports whether a write that meets the fault can have the fate. One that
// is not sent has no other, and one that is sent is applied or refused: failed is
// what its client left in the middle, and on its way is nothing after Flush.
func canBe(f faults.Fault, fate faults.Fate) bool {
	if !f.Sent() {
		return fate == faults.NeverSent
	}
	return slices.Contains([]faults.Fate{faults.Applied, faults.Refused}, fate)
}
