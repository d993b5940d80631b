package helm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// enforce is the test's network plugin, which enforces NetworkPolicies: until its standard
// input ends, it writes after each change of a pod or policy a table of nftables with a chain
// for each direction of each pod that a policy selects. It supports what this repository's
// policies use: IPv4, selectors, blocks, ports by number. It does not filter the node's own
// processes, such as the kubelet with its probes.
func enforce(ctx context.Context, _ []string) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	api, err := client.New(config, client.Options{})
	if err != nil {
		return nil, err
	}
	tables := 0
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for last := ""; ; <-tick.C {
		if ctx.Err() != nil {
			return tables, nft("delete table ip netpol\n")
		}
		var e enforced
		if err := errors.Join(api.List(ctx, &e.pods), api.List(ctx, &e.namespaces), api.List(ctx, &e.policies)); err != nil {
			if ctx.Err() == nil {
				return nil, err
			}
			continue
		}
		table, err := e.table()
		if err != nil {
			return nil, err
		}
		if table == last {
			continue
		}
		if err := nft("table ip netpol\ndelete table ip netpol\n" + table); err != nil {
			return nil, err
		}
		if last == "" {
			fmt.Println(opened)
		}
		tables, last = tables+1, table
	}
}

func nft(text string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s\n%s", err, out, text)
	}
	return nil
}

// enforced has the objects from which a table is made.
type enforced struct {
	pods       corev1.PodList
	namespaces corev1.NamespaceList
	policies   networkingv1.NetworkPolicyList
}

// table returns the whole table. A chain returns for packets that it allows, so that a packet
// between two pods passes a chain of each.
func (e *enforced) table() (string, error) {
	slices.SortFunc(e.pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Status.PodIP, b.Status.PodIP) })
	var chains strings.Builder
	from, to := []string{}, []string{}
	for i := range e.pods.Items {
		pod := &e.pods.Items[i]
		if !networked(pod) {
			continue
		}
		for _, direction := range []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress} {
			rules, selected, err := e.rules(pod, direction)
			if err != nil {
				return "", err
			}
			if !selected {
				continue
			}
			name := fmt.Sprintf("%s%d", strings.ToLower(string(direction)), i)
			fmt.Fprintf(&chains, "chain %s {\n%sdrop\n}\n", name, rules)
			jump := pod.Status.PodIP + " : jump " + name
			if direction == networkingv1.PolicyTypeIngress {
				to = append(to, jump)
			} else {
				from = append(from, jump)
			}
		}
	}
	hook := func(name string, maps ...string) string {
		return fmt.Sprintf("chain %s {\ntype filter hook %s priority filter;\nct state established,related accept\n%s}\n", name, name, strings.Join(maps, ""))
	}
	egress, ingress := verdicts("saddr", from), verdicts("daddr", to)
	return "table ip netpol {\n" + chains.String() + hook("forward", egress, ingress) + hook("input", egress) + "}\n", nil
}

func verdicts(side string, jumps []string) string {
	if len(jumps) == 0 {
		return ""
	}
	return "ip " + side + " vmap { " + strings.Join(jumps, ", ") + " }\n"
}

func networked(pod *corev1.Pod) bool {
	return pod.Status.PodIP != "" && !pod.Spec.HostNetwork && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// rules returns the lines of one pod's chain for one direction; selected is false if no
// policy selects the pod for that direction.
func (e *enforced) rules(pod *corev1.Pod, direction networkingv1.PolicyType) (lines string, selected bool, err error) {
	for i := range e.policies.Items {
		p := &e.policies.Items[i]
		if p.Namespace != pod.Namespace || !slices.Contains(p.Spec.PolicyTypes, direction) || !matches(&p.Spec.PodSelector, pod.Labels) {
			continue
		}
		selected = true
		if direction == networkingv1.PolicyTypeIngress {
			for _, r := range p.Spec.Ingress {
				err = errors.Join(err, e.rule(&lines, p.Namespace, "saddr", r.From, r.Ports))
			}
			continue
		}
		for _, r := range p.Spec.Egress {
			err = errors.Join(err, e.rule(&lines, p.Namespace, "daddr", r.To, r.Ports))
		}
	}
	return lines, selected, err
}

func (e *enforced) rule(lines *string, namespace, side string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) error {
	matchers := []string{""}
	for _, p := range ports {
		protocol := "tcp"
		if p.Protocol != nil {
			protocol = strings.ToLower(string(*p.Protocol))
		}
		if p.Port == nil || p.Port.IntValue() == 0 || p.EndPort != nil {
			return fmt.Errorf("a policy in %s has ports that are no number: %+v", namespace, p)
		}
		matchers = append(matchers, fmt.Sprintf("%s dport %d ", protocol, p.Port.IntValue()))
	}
	if len(ports) > 0 {
		matchers = matchers[1:]
	}
	for _, from := range e.peers(namespace, side, peers) {
		for _, port := range matchers {
			*lines += from + port + "return\n"
		}
	}
	return nil
}

// peers returns matchers of addresses; an empty list of peers matches all addresses.
func (e *enforced) peers(namespace, side string, peers []networkingv1.NetworkPolicyPeer) []string {
	if len(peers) == 0 {
		return []string{""}
	}
	var all []string
	for _, p := range peers {
		if b := p.IPBlock; b != nil {
			if strings.Contains(b.CIDR, ":") {
				continue
			}
			line := "ip " + side + " " + b.CIDR + " "
			if b.CIDR == "0.0.0.0/0" {
				line = ""
			}
			if len(b.Except) > 0 {
				line += "ip " + side + " != { " + strings.Join(b.Except, ", ") + " } "
			}
			all = append(all, line)
			continue
		}
		var addresses []string
		for i := range e.pods.Items {
			pod := &e.pods.Items[i]
			inNamespace := pod.Namespace == namespace
			if p.NamespaceSelector != nil {
				inNamespace = matches(p.NamespaceSelector, e.labelsOf(pod.Namespace))
			}
			if networked(pod) && inNamespace && (p.PodSelector == nil || matches(p.PodSelector, pod.Labels)) {
				addresses = append(addresses, pod.Status.PodIP)
			}
		}
		if len(addresses) > 0 {
			all = append(all, "ip "+side+" { "+strings.Join(addresses, ", ")+" } ")
		}
	}
	return all
}

func (e *enforced) labelsOf(namespace string) map[string]string {
	for i := range e.namespaces.Items {
		if e.namespaces.Items[i].Name == namespace {
			return e.namespaces.Items[i].Labels
		}
	}
	return nil
}

func matches(s *metav1.LabelSelector, set map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(apilabels.Set(set))
}
