package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/console/processes"
)

// staleLease is the age of a gateway's lease from which something is wrong: it
// is renewed every ten seconds.
const staleLease = 30 * time.Second

// report is all that `status` shows.
type report struct {
	Running
	pools  []v1alpha1.SandboxPool
	envs   []v1alpha1.SandboxEnv
	leases []coordinationv1.Lease
	full   error             // says that the disk of the state folder is full
	apiErr error             // why pools, envs and leases are not known
	fast   map[string]string // what each gateway says of its fast path
	now    time.Time
}

// Status writes what runs to out. The error says in one line what is wrong; an
// *ErrNotRunning if nothing runs.
func Status(ctx context.Context, stateDir string, out io.Writer) error {
	s := newState(stateDir)
	pid, err := s.running()
	if err != nil {
		return err
	}
	if pid == 0 {
		return &ErrNotRunning{stateDir}
	}
	r := report{now: time.Now(), full: s.room()}
	if r.Running, err = s.askRunning(ctx); err != nil {
		return fmt.Errorf("`sandlane up` (pid %d) does not answer: %w", pid, err)
	}
	r.apiErr, r.fast = s.readCluster(ctx, &r), fastPaths(ctx, r.Gateways)
	if err := r.write(out); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	if wrong := r.wrong(); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

func (s state) readCluster(ctx context.Context, r *report) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, api, err := connect(s.kubeconfig())
	if err != nil {
		return err
	}
	var pools v1alpha1.SandboxPoolList
	if err := api.List(ctx, &pools); err != nil {
		return fmt.Errorf("list the pools: %w", err)
	}
	var envs v1alpha1.SandboxEnvList
	if err := api.List(ctx, &envs); err != nil {
		return fmt.Errorf("list the envs: %w", err)
	}
	var leases coordinationv1.LeaseList
	if err := api.List(ctx, &leases, client.InNamespace(SystemNamespace), client.HasLabels{v1alpha1.LabelGateway}); err != nil {
		return fmt.Errorf("list the gateways' leases: %w", err)
	}
	r.pools, r.envs, r.leases = pools.Items, envs.Items, leases.Items
	return nil
}

// wrong lists what is not as it should be.
func (r *report) wrong() []string {
	var wrong []string
	if r.full != nil { // first: what follows is often its effect
		wrong = append(wrong, r.full.Error())
	}
	for _, p := range r.Processes {
		if p.Problem != "" {
			wrong = append(wrong, p.Name+": "+oneLine(p.Problem))
		}
	}
	if r.apiErr != nil {
		return append(wrong, oneLine(r.apiErr.Error()))
	}
	leased := map[string]bool{}
	for _, l := range r.leases {
		leased[l.Name] = true
		if age := r.leaseAge(l); age > staleLease {
			wrong = append(wrong, fmt.Sprintf("the lease of %s was last renewed %s ago", l.Name, short(age)))
		}
	}
	for _, g := range r.Gateways {
		if !leased[g.Name] {
			wrong = append(wrong, g.Name+" has no lease")
		}
	}
	for _, p := range r.pools {
		if p.Status.Phase == v1alpha1.PoolDegraded {
			wrong = append(wrong, fmt.Sprintf("the pool %s/%s is degraded", p.Namespace, p.Name))
		}
	}
	for _, e := range r.envs {
		if c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.EnvConditionTemplateConsistent); c != nil && c.Status == metav1.ConditionFalse {
			wrong = append(wrong, fmt.Sprintf("the env %s/%s: %s", e.Namespace, e.Name, oneLine(c.Message)))
		}
	}
	return wrong
}

func (r *report) leaseAge(l coordinationv1.Lease) time.Duration {
	if l.Spec.RenewTime == nil {
		return r.now.Sub(l.CreationTimestamp.Time)
	}
	return r.now.Sub(l.Spec.RenewTime.Time)
}

func (r *report) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "Sandlane runs since %s (pid %d), gateway %s\n\n", short(r.now.Sub(r.StartedAt)), r.PID, r.Gateways[0].URL)
	fmt.Fprintln(w, "PROCESS\tPID\tUPTIME\tRESTARTS\tHEALTH")
	for _, p := range r.Processes {
		health, uptime := "ok", "-"
		if p.Problem != "" {
			health = oneLine(p.Problem)
		}
		if p.PID != 0 {
			uptime = short(r.now.Sub(p.StartedAt))
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\n", p.Name, p.PID, uptime, p.Restarts, health)
	}
	if r.apiErr != nil {
		fmt.Fprintf(w, "\npools and gateways are not known: %s\n", oneLine(r.apiErr.Error()))
		return w.Flush()
	}
	fmt.Fprintln(w, "\nPOOL\tPHASE\tWANTED\tIDLE\tRUNNING\tWHY NO POD IS IDLE")
	for _, p := range r.pools {
		why := "-"
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolConditionAvailable); c != nil && c.Status == metav1.ConditionFalse && p.Spec.Replicas > 0 {
			why = oneLine(c.Message)
		}
		fmt.Fprintf(w, "%s/%s\t%s\t%d\t%d\t%d\t%s\n", p.Namespace, p.Name, p.Status.Phase, p.Spec.Replicas, p.Status.Idle, p.Status.Running, why)
	}
	r.writeEnvs(w)
	fmt.Fprintln(w, "\nGATEWAY\tURL\tFAST PATH\tLEASE RENEWED")
	for _, l := range r.leases {
		url, fast := "-", "-"
		for _, g := range r.Gateways {
			if g.Name == l.Name {
				url, fast = g.URL, r.fast[g.Name]
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s ago\n", l.Name, url, fast, short(r.leaseAge(l)))
	}
	return w.Flush()
}

// writeEnvs shows the envs, if there are any.
func (r *report) writeEnvs(w io.Writer) {
	if len(r.envs) == 0 {
		return
	}
	fmt.Fprintln(w, "\nENV\tTEMPLATE\tMEMBERS\tIDLE\tRUNNING\tWAITING\tREADY")
	for _, e := range r.envs {
		ready := "Unknown"
		if c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.EnvConditionReady); c != nil {
			ready = string(c.Status)
		}
		s := e.Status
		fmt.Fprintf(w, "%s/%s\t%s\t%d\t%d\t%d\t%d\t%s\n", e.Namespace, e.Name, e.Spec.TemplateRef.Name, s.Members, s.Idle, s.Running, s.Waiting, ready)
	}
}

// short is a duration as people say it.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// fastPaths is what each gateway says of its fast path, by name.
func fastPaths(ctx context.Context, gateways []GatewayInfo) map[string]string {
	var all []processes.Process
	for _, g := range gateways {
		all = append(all, processes.Process{Name: g.Name, Gateway: true, ReadMetrics: g.readMetrics})
	}
	found := map[string]string{}
	for name, m := range processes.Ask(ctx, all) {
		found[name] = string(m.FastPath)
	}
	return found
}
