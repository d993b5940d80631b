package chaos

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// hitStreams is how many requests askInStreams sends at once. Envoy takes one request of a
// connection on in each turn of its event loop: the others wait between the module's two
// looks at the route table, for as long as the Envoy is stopped.
const hitStreams = 32

// askInStreams is one client that speaks HTTP/2 to a gateway's Envoy: it sends requests for
// sandboxes by the streams of one connection, all at once, and waits for their answers.
func (r *hitRun) askInStreams(ctx context.Context, g stack.Gateway, slots []*hitSlot) {
	rng := rand.New(rand.NewPCG(hitStreams, uint64(time.Now().UnixNano())))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: wireTimeout}
	for wait(ctx, hitPause) == nil {
		var burst sync.WaitGroup
		for range hitStreams {
			if r.pace.Wait(ctx) != nil {
				break
			}
			id := someID(slots, rng)
			if id == "" {
				continue
			}
			burst.Go(func() {
				begin := time.Now()
				status, body, err := get(ctx, client, g.URL, id)
				if ctx.Err() == nil {
					r.note(id, g, begin, status, body, err)
				}
			})
		}
		burst.Wait()
	}
}

// get asks a sandbox's echo server; a status of 0 is no answer.
func get(ctx context.Context, client *http.Client, url, id string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("X-Sandbox-Id", id)
	req.Header.Set("X-Sandbox-Port", "8000")
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if body, err = io.ReadAll(res.Body); err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, body)
	}
	return res.StatusCode, body, err
}

// someID is the ID of a sandbox that may be asked for; empty if there is none.
func someID(slots []*hitSlot, rng *rand.Rand) string {
	first := rng.IntN(len(slots))
	for i := range slots {
		if id := slots[(first+i)%len(slots)].current(); id != "" {
			return id
		}
	}
	return ""
}
