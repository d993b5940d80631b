package gateway

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

const (
	// cordonsEvery is how often the cordoned nodes are listed: a drain of a node begins with
	// its cordon, and evicts its pods a moment later.
	cordonsEvery = 5 * time.Second
	cordonsTry   = 5 * time.Second
)

// cordons tells the schedulers which nodes are cordoned.
type cordons struct {
	api  client.Reader
	tell func(nodes map[string]bool)
	log  *slog.Logger
}

// start lists the cordoned nodes until ctx ends, and returns nil. While they cannot be listed,
// the last list counts.
func (c cordons) start(ctx context.Context) error {
	for failed := false; ; {
		err := c.list(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			c.log.Warn("cordoned nodes cannot be listed; claims may take their pods before others", "error", err)
		}
		failed = err != nil
		if !backoff.Sleep(ctx, cordonsEvery) {
			return nil
		}
	}
}

func (c cordons) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cordonsTry)
	defer cancel()
	list := &corev1.NodeList{}
	// From the API server's memory, however old, and the cordoned alone.
	if err := c.api.List(ctx, list, client.MatchingFields{"spec.unschedulable": "true"}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return err
	}
	nodes := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		nodes[list.Items[i].Name] = true
	}
	c.tell(nodes)
	return nil
}
