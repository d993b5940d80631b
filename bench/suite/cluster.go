package suite

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/controlplanepb"
	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/gateway"
	"github.com/sandlane/sandlane/test/kubetest"
	"github.com/sandlane/sandlane/test/ports"
)

const (
	// Namespace holds all pods of the benchmarks.
	Namespace = "bench"
	// SystemNamespace holds leases.
	SystemNamespace = "sandlane-system"
	// KeyNamespace holds API keys.
	KeyNamespace = "sandlane-keys"
	// Pool is the pool of first requests; it is empty unless pods are made in it.
	Pool = "bench"
	// FirstAddress is the address of sandbox b0; those of the others follow it.
	FirstAddress = "127.1.0.0"
	largestFleet = 1 << 20
	// writers is how many objects are written at once.
	writers = 16
)

// Cluster is an API server with a pool and pods that no node runs: their status
// is written by the benchmarks.
type Cluster struct {
	*kubetest.ControlPlane
	env        *Env
	kubeconfig string
	port       int // of all sandboxes

	agents map[string]bool // pools whose pods run sandboxd; written before pods are made
	// initKey is the ID of the key that these pods carry; written with agents.
	initKey string

	fleet  int           // sandboxes b0 to b<fleet-1> exist
	others atomic.Uint32 // addresses given out after those of any fleet
}

// StartCluster starts an API server whose sandboxes all serve at a port.
func (e *Env) StartCluster(ctx context.Context, port int) (*Cluster, error) {
	e.Progress("starting etcd and kube-apiserver")
	plane, err := kubetest.Launch()
	if err != nil {
		return nil, err
	}
	c := &Cluster{ControlPlane: plane, env: e, kubeconfig: filepath.Join(e.Dir, "kubeconfig"), port: port, agents: map[string]bool{}}
	if err := c.prepare(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close stops the API server.
func (c *Cluster) Close() {
	if err := c.Stop(); err != nil {
		c.env.Progress("stopping the API server: %v", err)
	}
}

func (c *Cluster) prepare(ctx context.Context) error {
	if err := os.WriteFile(c.kubeconfig, c.KubeConfig, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	for _, name := range []string{Namespace, SystemNamespace, KeyNamespace} {
		if err := c.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return fmt.Errorf("make the namespace %s: %w", name, err)
		}
	}
	return c.MakePool(ctx, Pool)
}

// MakeAgentPool makes a pool whose pods have a port for sandboxd, so that the E2B API can
// create sandboxes from it.
func (c *Cluster) MakeAgentPool(ctx context.Context, name string) error {
	keys, err := credentials.LoadInitKeys(ctx, c.Client, SystemNamespace)
	if err != nil {
		return err
	}
	c.initKey, c.agents[name] = keys.Current().ID, true
	return c.MakePool(ctx, name)
}

// MakePool makes a pool from which any client may claim by a first request.
func (c *Cluster) MakePool(ctx context.Context, name string) error {
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
	p.Spec.FirstRequest = &v1alpha1.FirstRequest{Access: v1alpha1.AccessPublic}
	p.Spec.Template = &v1alpha1.SandboxTemplateSpec{Template: corev1.PodTemplateSpec{Spec: c.podSpec(name)}}
	if err := c.Client.Create(ctx, p); err != nil {
		return fmt.Errorf("make the pool %s: %w", name, err)
	}
	return nil
}

func (c *Cluster) podSpec(pool string) corev1.PodSpec {
	main := corev1.Container{Name: "main", Image: "bench"}
	if c.agents[pool] {
		main.Ports = []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}}
	}
	return corev1.PodSpec{Containers: []corev1.Container{main}}
}

// Address is that of the i-th sandbox.
func Address(i uint32) netip.Addr {
	first := netip.MustParseAddr(FirstAddress).As4()
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(first[:])+i)
	return netip.AddrFrom4(b)
}

// Host names a port of a sandbox.
func (c *Cluster) Host(id string) string { return fmt.Sprintf("%d-%s.localhost", c.port, id) }

// MakeIdle makes a pod that can be claimed, at an address of its own.
func (c *Cluster) MakeIdle(ctx context.Context, pool string) (*corev1.Pod, error) {
	pod, err := c.MakeUnready(ctx, pool)
	if err != nil {
		return nil, err
	}
	return pod, c.MakeReady(ctx, pod)
}

// MakeUnready makes a pod that can be claimed after MakeReady.
func (c *Cluster) MakeUnready(ctx context.Context, pool string) (*corev1.Pod, error) {
	return c.makePod(ctx, pool, idleName(), func(*corev1.Pod) {})
}

func idleName() string { return "idle-" + string(uuid.NewUUID()) }

// other returns an address that no sandbox of a fleet has.
func (c *Cluster) other() netip.Addr { return Address(largestFleet + c.others.Add(1)) }

func (c *Cluster) makePod(ctx context.Context, pool, name string, change func(*corev1.Pod)) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: name,
			Labels:      map[string]string{v1alpha1.LabelPool: pool, v1alpha1.LabelPhase: string(v1alpha1.PodIdle)},
			Annotations: map[string]string{v1alpha1.AnnotationAddress: c.other().String()},
		},
		Spec: c.podSpec(pool),
	}
	if c.agents[pool] {
		pod.Labels[v1alpha1.LabelInitKey] = c.initKey
	}
	change(pod)
	if err := c.Client.Create(ctx, pod); err != nil {
		return nil, fmt.Errorf("make a pod: %w", err)
	}
	return pod, nil
}

// MakeReady gives the pod its address and makes it ready: one write.
func (c *Cluster) MakeReady(ctx context.Context, pod *corev1.Pod) error {
	addr := pod.Annotations[v1alpha1.AnnotationAddress]
	pod.Status.PodIP, pod.Status.PodIPs = addr, []corev1.PodIP{{IP: addr}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := c.Client.Status().Update(ctx, pod); err != nil {
		return fmt.Errorf("make a pod ready: %w", err)
	}
	return nil
}

// MakeClaimed makes a running pod that names a sandbox which does not exist yet, and
// returns the binding that the sandbox must have.
func (c *Cluster) MakeClaimed(ctx context.Context, id string) (v1alpha1.Binding, error) {
	claim := string(uuid.NewUUID())
	pod, err := c.makePod(ctx, Pool, id, func(p *corev1.Pod) {
		p.Labels[v1alpha1.LabelPhase], p.Labels[v1alpha1.LabelSandboxID] = string(v1alpha1.PodRunning), id
		p.Annotations[v1alpha1.AnnotationClaim] = claim
	})
	if err != nil {
		return v1alpha1.Binding{}, err
	}
	return v1alpha1.Binding{ClaimID: claim, PodName: pod.Name, PodUID: string(pod.UID)}, c.MakeReady(ctx, pod)
}

// Fleet makes the sandboxes b0 to b<count-1>, except those that exist, and returns the hosts
// of all.
func (c *Cluster) Fleet(ctx context.Context, count int) ([]string, error) {
	from := c.fleet
	if count > from {
		c.env.Progress("making %d sandboxes", count-from)
	}
	c.fleet = max(count, from)
	if err := c.storeFleet(ctx, from, c.fleet); err != nil {
		return nil, err
	}
	hosts := make([]string, count)
	for i := range hosts {
		hosts[i] = c.Host("b" + strconv.Itoa(i))
	}
	return hosts, nil
}

// Each calls f for 0 to n-1, a few at a time, and returns the first error.
func Each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		next    atomic.Int64
		workers sync.WaitGroup
	)
	for range min(writers, n) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// Gateway is a running `sandlane gateway`.
type Gateway struct {
	*Process
	Name, RunDir, Metrics string // Metrics is a URL
}

// StartGateway runs a gateway with its default flags and further ones.
func (c *Cluster) StartGateway(ctx context.Context, name string, env []string, args ...string) (*Gateway, error) {
	dir, err := c.env.Folder(name)
	if err != nil {
		return nil, err
	}
	port, err := ports.Free()
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	g := &Gateway{Name: name, RunDir: dir, Metrics: "http://" + address + "/metrics"}
	g.Process, err = c.env.Start(ctx, name, env, Get("http://"+address+"/readyz"), c.env.Sandlane, append([]string{
		"gateway", "--kubeconfig", c.kubeconfig, "--name", name, "--run-dir", dir, "--metrics-address", address,
		"--system-namespace", SystemNamespace, "--first-request-pool", Namespace + "/" + Pool, "--drain-delay", "0s", "--drain-grace", "1s",
	}, args...)...)
	return g, err
}

// Place tells each gateway its number among the gateways that share the pools, as a
// controller does with its polls.
func Place(ctx context.Context, gateways []*Gateway) error {
	for i, g := range gateways {
		if err := g.place(ctx, i, len(gateways)); err != nil {
			return fmt.Errorf("tell %s its place: %w", g.Name, err)
		}
	}
	return nil
}

func (g *Gateway) place(ctx context.Context, index, of int) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(g.RunDir, gateway.ControlSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = controlplanepb.NewGatewayClient(conn).LastActive(ctx, &controlplanepb.LastActiveRequest{Place: uint32(index), Gateways: uint32(of)})
	return err
}
