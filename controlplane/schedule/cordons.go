package schedule

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

// FollowCordons lists the cordoned nodes by the set's client until ctx ends (see SetCordoned), and
// returns nil. While they cannot be listed, the last list counts.
func (s *Set) FollowCordons(ctx context.Context, log *slog.Logger) error {
	for failed := false; ; {
		nodes, err := listCordoned(ctx, s.client)
		if err != nil && !failed && ctx.Err() == nil {
			log.Warn("cordoned nodes cannot be listed; claims may take their pods before others", "error", err)
		}
		if failed = err != nil; !failed {
			s.SetCordoned(nodes)
		}
		if !backoff.Sleep(ctx, cordonsEvery) {
			return nil
		}
	}
}

func listCordoned(ctx context.Context, c client.Reader) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, cordonsTry)
	defer cancel()
	list := &corev1.NodeList{}
	// From the API server's memory, however old, and the cordoned alone.
	if err := c.List(ctx, list, client.MatchingFields{"spec.unschedulable": "true"}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return nil, err
	}
	nodes := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		nodes[list.Items[i].Name] = true
	}
	return nodes, nil
}
