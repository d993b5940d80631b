package claims

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/test/result"
)

const restingPool = "resting"

// pause measures pauses and resumes of the E2B API and first requests for paused
// sandboxes, through one gateway's Envoy, each beside one bare PATCH. One small server is
// their sandboxd. It stops nothing, so that the time of a freeze is not measured.
func (b *bench) pause(ctx context.Context) error {
	agent, err := b.Start(ctx, "claims-freezer", []string{"GOMAXPROCS=1"}, suite.Answers("tcp", fmt.Sprintf("127.0.0.1:%d", v1alpha1.SandboxdPort)),
		b.Self, "agent", "--port", strconv.Itoa(v1alpha1.SandboxdPort))
	if err != nil {
		return err
	}
	defer agent.Stop()
	if err := b.cluster.MakeAgentPool(ctx, restingPool); err != nil {
		return err
	}
	key, _, err := credentials.NewStore(b.cluster.Client, suite.KeyNamespace).Create(ctx, team, suite.Namespace)
	if err != nil {
		return err
	}
	f, err := b.startFronts(ctx, "pause", 1)
	defer f.stop()
	if err != nil {
		return err
	}
	p := &pauses{b, f.urls[0], key, make([]string, b.Claims)}
	if err := p.make(ctx); err != nil {
		return err
	}
	for _, row := range []struct {
		name         string
		before, ours func(ctx context.Context, id string) error
	}{
		{"pause", nil, p.pause},
		{"resume", nil, p.resume},
		{"wake", p.pause, func(ctx context.Context, id string) error { return b.must(ctx, p.url, id) }},
	} {
		if err := p.measure(ctx, row.name, row.before, row.ours); err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
	}
	b.Add("claims/wake/sandlane/p95", "ms", "less", result.Quantile(b.Row("claims/wake/sandlane/latency").Samples, 0.95)/1000)
	return nil
}

// pauses are the sandboxes that are paused and resumed.
type pauses struct {
	*bench
	url, key string
	ids      []string
}

// make makes the sandboxes.
func (p *pauses) make(ctx context.Context) error {
	if _, err := p.pods(ctx, restingPool, len(p.ids)); err != nil {
		return err
	}
	body := fmt.Sprintf(`{"templateID":%q,"timeout":%d,"secure":true,"autoPause":true,"autoResume":{"enabled":true}}`, restingPool, timeout)
	for i := range p.ids {
		answer, err := p.post(ctx, "sandboxes", body, http.StatusCreated)
		if err != nil {
			return err
		}
		var made struct{ SandboxID string }
		if err := json.Unmarshal(answer, &made); err != nil || made.SandboxID == "" {
			return fmt.Errorf("a create is answered with %s: %w", answer, err)
		}
		p.ids[i] = made.SandboxID
	}
	return nil
}

// measure times one step of each sandbox in turns with one bare PATCH. before prepares the
// sandbox for the step and is not timed.
func (p *pauses) measure(ctx context.Context, name string, before, ours func(ctx context.Context, id string) error) error {
	bares, err := p.unwatched(ctx, restingPool, len(p.ids))
	if err != nil {
		return err
	}
	if before != nil {
		for _, id := range p.ids {
			if err := before(ctx, id); err != nil {
				return err
			}
		}
	}
	return p.oneByOne(ctx, name, len(p.ids),
		func(ctx context.Context, i int) error { return ours(ctx, p.ids[i]) },
		func(ctx context.Context, i int) error { return p.patch(ctx, claim(bares[i])) })
}

func (p *pauses) pause(ctx context.Context, id string) error {
	_, err := p.post(ctx, "sandboxes/"+id+"/pause", "{}", http.StatusNoContent)
	return err
}

func (p *pauses) resume(ctx context.Context, id string) error {
	_, err := p.post(ctx, "sandboxes/"+id+"/connect", fmt.Sprintf(`{"timeout":%d}`, timeout), http.StatusCreated)
	return err
}

func (p *pauses) post(ctx context.Context, path, body string, want int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, bytes.NewBufferString(body))
	if err != nil {
		return nil, fmt.Errorf("make a request for %s: %w", path, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-API-Key", p.key)
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != want {
		err = fmt.Errorf("%s is answered with %d, want %d: %s", path, resp.StatusCode, want, answer)
	}
	return answer, err
}
