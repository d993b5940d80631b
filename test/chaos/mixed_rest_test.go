package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// restLife is the timeout of sandboxes of the REST API, in seconds: longer than a user keeps
// one.
const restLife = "300"

// rest sends a request to the REST API of a gateway.
func (m *mixture) rest(g stack.Gateway, method, path, body string) (stack.Answer, error) {
	// A create may wait for a pod for 50 s, and longer than that behind a gateway
	// that stands still.
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: claimLimit}
	return g.REST(m.ctx, c, m.key, method, path, body)
}

// create makes a sandbox by the REST API of some gateway, and returns its ID and the token
// for its sandboxd; empty if the run is over. It tries until a gateway answers that it has
// made one. Sandboxes of creates without an answer may exist, and stay idle.
func (u *user) create(template string) (id, token string) {
	m, from := u.m, u.rng.IntN(len(shared.Up.Gateways))
	for try := 0; m.ctx.Err() == nil; try++ {
		g := shared.Up.Gateways[(from+try)%len(shared.Up.Gateways)]
		a, err := m.rest(g, http.MethodPost, "/v2/sandboxes", `{"templateID":"`+template+`","timeout":`+restLife+`}`)
		var made struct{ SandboxID, EnvdAccessToken string }
		switch {
		case err != nil && m.ctx.Err() == nil:
			m.noAnswer("create: %v", err)
		case a.Status == http.StatusCreated && json.Unmarshal(a.Body, &made) == nil && made.SandboxID != "":
			m.did("created")
			m.mu.Lock()
			m.created = append(m.created, made.SandboxID)
			m.mu.Unlock()
			return made.SandboxID, made.EnvdAccessToken
		default:
			m.did(fmt.Sprintf("create refused with %d", a.Status))
			if a.Status < 500 && a.Status != http.StatusTooManyRequests {
				m.t.Errorf("create through %s: %v", g.Name, a)
			}
		}
		_ = wait(m.ctx, 200*time.Millisecond)
	}
	return "", ""
}

// kill ends a sandbox by the REST API, as an SDK's kill does.
func (u *user) kill(id string) error {
	m, from, try := u.m, u.rng.IntN(len(shared.Up.Gateways)), 0
	m.did("killed")
	return until(m.ctx, "the kill of "+id, func() error {
		g := shared.Up.Gateways[(from+try)%len(shared.Up.Gateways)]
		try++
		a, err := m.rest(g, http.MethodDelete, "/sandboxes/"+id, "")
		if err != nil {
			m.noAnswer("kill: %v", err)
			return err
		}
		// Not found: the sandbox has ended, by an earlier kill whose answer was lost.
		if a.Status != http.StatusNoContent && a.Status != http.StatusNotFound {
			return fmt.Errorf("%s: %v", g.Name, a)
		}
		return nil
	})
}

// session is one WebSocket's life.
type session struct {
	id, gateway    string
	opened, closed time.Time
}

// webSockets opens a silent WebSocket to a sandbox, which has no other use. When that was
// closed, it opens one to a new sandbox.
func (m *mixture) webSockets(rng *rand.Rand, prefix string) {
	ctx := m.load.ctx
	for n := 0; ctx.Err() == nil; n++ {
		id, g := fmt.Sprintf("%s-%d", prefix, n), shared.Up.Gateways[rng.IntN(len(shared.Up.Gateways))]
		ws, err := dialWebSocket(ctx, g, id, m.ns+"/first")
		if err != nil {
			_ = wait(ctx, 500*time.Millisecond)
			continue
		}
		s := session{id: id, gateway: g.Name, opened: time.Now()}
		_, _, _ = ws.Read(ctx) // nothing comes; it returns when either side closes
		_ = ws.CloseNow()
		s.closed = time.Now()
		m.mu.Lock()
		m.opened = append(m.opened, s)
		m.mu.Unlock()
	}
}
