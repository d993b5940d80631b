package suite

import (
	"context"
	"fmt"

	"k8s.io/client-go/discovery"
)

// CollectGarbage makes the API server collect its garbage now.
func (c *Cluster) CollectGarbage(ctx context.Context) error {
	client, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("make a client for the API server's heap: %w", err)
	}
	if _, err := client.RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").Do(ctx).Raw(); err != nil {
		return fmt.Errorf("have the API server collect its garbage: %w", err)
	}
	return nil
}
