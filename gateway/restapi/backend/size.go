package backend

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/backoff"
)

const (
	nodeSizeEvery = 5 * time.Minute
	nodeSizeRetry = 10 * time.Second
	nodeSizeTry   = 5 * time.Second
)

// size is what a sandbox may use.
type size struct{ cpus, memoryMB, diskMB int }

// NodeSize knows how large a node is, for sandboxes without limits: it reads one
// node now and then. It is for people to look at; nothing is decided by it.
type NodeSize struct {
	api  client.Reader
	log  *slog.Logger
	last atomic.Pointer[size]
}

// NewNodeSize makes one; Start must run for it to know anything.
func NewNodeSize(api client.Reader, log *slog.Logger) *NodeSize { return &NodeSize{api: api, log: log} }

// Start reads until ctx ends, and returns nil.
func (n *NodeSize) Start(ctx context.Context) error {
	for {
		wait := nodeSizeEvery
		if err := n.read(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("the size of nodes is not known; sandboxes without limits show an older one, or none", "error", err)
			wait = nodeSizeRetry
		}
		if !backoff.Sleep(ctx, wait) {
			return nil
		}
	}
}

func (n *NodeSize) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nodeSizeTry)
	defer cancel()
	nodes := &corev1.NodeList{}
	// From the API server's memory, however old.
	if err := n.api.List(ctx, nodes, &client.ListOptions{Limit: 1, Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return err
	}
	if len(nodes.Items) > 0 {
		z := sizeOf(nodes.Items[0].Status.Capacity)
		n.last.Store(&z)
	}
	return nil
}

// of is what a sandbox of the template may use: the limits of all its containers,
// and where one of them has none, the node's size. template may be nil.
func (n *NodeSize) of(template *v1alpha1.SandboxTemplateSpec) size {
	var z size
	if node := n.last.Load(); node != nil {
		z = *node
	}
	if template == nil {
		return z
	}
	containers := template.Template.Spec.Containers
	limit := func(name corev1.ResourceName) (sum resource.Quantity, all bool) {
		for i := range containers {
			q, ok := containers[i].Resources.Limits[name]
			if !ok {
				return sum, false
			}
			sum.Add(q)
		}
		return sum, len(containers) > 0
	}
	if q, ok := limit(corev1.ResourceCPU); ok {
		z.cpus = cpus(q)
	}
	if q, ok := limit(corev1.ResourceMemory); ok {
		z.memoryMB = megabytes(q)
	}
	if q, ok := limit(corev1.ResourceEphemeralStorage); ok {
		z.diskMB = megabytes(q)
	}
	return z
}

func sizeOf(r corev1.ResourceList) size {
	return size{
		cpus:     cpus(r[corev1.ResourceCPU]),
		memoryMB: megabytes(r[corev1.ResourceMemory]),
		diskMB:   megabytes(r[corev1.ResourceEphemeralStorage]),
	}
}

// cpus rounds up: half a processor is one to count.
func cpus(q resource.Quantity) int { return int(q.Value()) }

func megabytes(q resource.Quantity) int { return int(q.Value() >> 20) }
