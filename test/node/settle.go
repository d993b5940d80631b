package node

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// settle waits until pods can be made on a node whose programs run.
func (n *Node) settle(ctx context.Context) error {
	began := time.Now()
	for _, tarball := range n.o.Images {
		if err := n.until(ctx, "ctr", "-n", "k8s.io", "images", "import", tarball); err != nil {
			return fmt.Errorf("import an image: %w", err)
		}
	}
	n.o.Progress(fmt.Sprintf("%d images imported in %s", len(n.o.Images), since(began)))
	if err := n.until(ctx, "kubectl", "create", "clusterrolebinding", "node-proxy", "--clusterrole=system:node-proxier", "--user=system:kube-proxy"); err != nil {
		return fmt.Errorf("give kube-proxy its rights: %w", err)
	}
	if err := n.until(ctx, "kubectl", "wait", "--for=condition=Ready", "node/"+n.Name, "--timeout=5s"); err != nil {
		return fmt.Errorf("wait for the node to be Ready: %w", err)
	}
	// Pods are refused before.
	if err := n.until(ctx, "kubectl", "get", "serviceaccount", "default"); err != nil {
		return fmt.Errorf("wait for the service account default: %w", err)
	}
	return nil
}

// until runs a command again and again until it succeeds, and returns its last error when
// ctx ends. An error that the object already exists counts as success.
func (n *Node) until(ctx context.Context, name string, args ...string) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := n.Run(ctx, name, args...)
		if err == nil || strings.Contains(err.Error(), "already exists") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
