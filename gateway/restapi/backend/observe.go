package backend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
)

const (
	metricsTimeout = 2 * time.Second // see agent.Agent
	logsTimeout    = 10 * time.Second
	maxLogBytes    = 1 << 20
)

// Metrics implements restapi.Sandboxes: what sandboxd measures now, and its samples. A
// sandbox that does not run has none.
func (x *Backend) Metrics(ctx context.Context, namespace, id string, history bool) ([]restapi.Metric, error) {
	token := x.cache.Begin(id)
	a, err := x.locate(ctx, namespace, id)
	if err != nil {
		return nil, err
	}
	if a.State != routing.Running || !a.Sandboxd {
		return []restapi.Metric{}, nil
	}
	if !x.cache.Admits(token, a.Route) {
		return nil, fmt.Errorf("metrics of sandbox %s: %w", id, writes.ErrStale)
	}
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	seen, err := x.agent.Metrics(ctx, a.Route.Addr, id, a.UID, history)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", id, err)
	}
	all := make([]restapi.Metric, 0, len(seen))
	for _, m := range seen {
		all = append(all, restapi.Metric{
			At: time.Unix(m.TS, 0), CPUCount: m.CPUCount, CPUUsedPercent: m.CPUUsedPct,
			MemUsed: m.MemUsed, MemTotal: m.MemTotal, MemCache: m.MemCache, DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
		})
	}
	return all, nil
}

// locate finds where a sandbox of the namespace runs: from the index, or by a live read
// if the index does not show it running.
func (x *Backend) locate(ctx context.Context, namespace, id string) (routing.Answer, error) {
	if !sandboxID.MatchString(id) {
		return routing.Answer{}, restapi.ErrNotFound
	}
	a := x.ended.Correct(x.index.Resolve(id))
	if a.State != routing.Running {
		var err error
		if a, err = x.live.ResolveFor(ctx, readerOf(ctx, namespace), id); err != nil {
			return a, readError(err)
		}
	}
	if a.State == routing.Unknown || a.State == routing.Ended || a.Namespace != namespace {
		return routing.Answer{}, restapi.ErrNotFound
	}
	return a, nil
}

// Logs implements restapi.Sandboxes: what the pod's container with sandboxd printed.
// Where the node gives no logs there are none.
func (x *Backend) Logs(ctx context.Context, namespace, id string, limit int) ([]restapi.LogLine, error) {
	token := x.cache.Begin(id)
	a, err := x.locate(ctx, namespace, id)
	if err != nil {
		return nil, err
	}
	if a.State != routing.Running || limit <= 0 {
		return []restapi.LogLine{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, logsTimeout)
	defer cancel()
	lines, err := x.readLogs(ctx, a, limit)
	if err != nil {
		if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		x.logLimit.Do(func() { x.log.Warn("no logs of a sandbox", "sandbox", id, "error", err) })
		return []restapi.LogLine{}, nil
	}
	// The pod may serve another claim by now, and the index be behind: fences are not.
	if b, err := x.locate(ctx, namespace, id); err != nil || b.ClaimID != a.ClaimID || !x.cache.Admits(token, a.Route) {
		return []restapi.LogLine{}, err
	}
	return lines, nil
}

func (x *Backend) readLogs(ctx context.Context, a routing.Answer, limit int) ([]restapi.LogLine, error) {
	stream, err := x.pods.CoreV1().Pods(a.Namespace).GetLogs(a.PodName, &corev1.PodLogOptions{
		Container: x.container(a), Timestamps: true, TailLines: new(int64(limit)), LimitBytes: new(int64(maxLogBytes)),
	}).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	lines := []restapi.LogLine{}
	scanner := bufio.NewScanner(stream)
	scanner.Buffer(nil, maxLogBytes)
	for scanner.Scan() && len(lines) < limit {
		stamp, text, _ := strings.Cut(scanner.Text(), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil { // the rest of a line that was cut
			continue
		}
		lines = append(lines, restapi.LogLine{At: at, Text: text})
	}
	return lines, scanner.Err()
}

// container is the one whose logs are a sandbox's: that with sandboxd, else the
// first. Empty if the template is gone, which works for pods of one container.
func (x *Backend) container(a routing.Answer) string {
	pool, _ := x.index.Pool(a.Namespace, a.Pool)
	template := x.index.Template(pool)
	if template == nil || len(template.Template.Spec.Containers) == 0 {
		return ""
	}
	containers := template.Template.Spec.Containers
	for i := range containers {
		if v1alpha1.RunsSandboxd(&corev1.PodSpec{Containers: containers[i : i+1]}) {
			return containers[i].Name
		}
	}
	return containers[0].Name
}
