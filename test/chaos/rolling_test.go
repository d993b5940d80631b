package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/history"
	"github.com/sandlane/sandlane/test/stack"
)

// TestRollingRestart stops one gateway after the other for rollingTime, each when the one
// before serves again.
const (
	rollingTime  = time.Minute
	rollingRate  = 200 // requests a second
	rollingIdle  = 4 * time.Second
	rollingWant  = 6  // restarts at least
	webSockets   = 20 // each the only use of its sandbox
	askedRarely  = 10 // sandboxes used by one request a second
	askedOften   = 10 // sandboxes that get the rest of the requests
	rollingTries = 10 // gateways tried for one request
)

// rolling is the load of TestRollingRestart. Its client knows the gateways' addresses and
// nothing about their state, and tries the next gateway only after a connect error.
type rolling struct {
	*load
	client *http.Client
	stop   context.Context // its end stops new requests; those under way are completed
	end    context.CancelFunc
	sent   sync.WaitGroup

	mu        sync.Mutex
	requests  int
	first     int // of these, first requests for a new ID
	refused   int // connect errors
	failed    []string
	opened    int // WebSockets
	cut       int // of these, by a drain
	messages  int
	signalled map[string]time.Time // when each gateway was last told to stop
}

// connectError reports whether no connection was made, so that no byte of the request was
// sent. If a connection is reset or closed after it was made, the request has failed. That
// includes a kept connection that the gateway closes while a request is on its way: net/http
// would repeat some of those requests, but not a PUT. net/http does repeat a request of which
// no byte was written because its kept connection was closed before, which is safe.
func connectError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// any calls do with one gateway after the other until it returns no connect error.
func (r *rolling) any(from int, do func(g stack.Gateway) error) error {
	for try := range rollingTries {
		err := do(shared.Up.Gateways[(from+try)%len(shared.Up.Gateways)])
		if !connectError(err) {
			return err
		}
		r.mu.Lock()
		r.refused++
		r.mu.Unlock()
	}
	return fmt.Errorf("no gateway takes a connection, after %d tries", rollingTries)
}

// request sends one request and keeps its answer.
func (r *rolling) request(n int, id, pool string) {
	r.sent.Go(func() {
		begin := time.Now()
		err := r.any(n, func(g stack.Gateway) error {
			req, err := stack.Request{ID: id, Pool: pool, Method: http.MethodPut}.Build(r.t.Context(), g.URL)
			if err != nil {
				return err
			}
			a, err := stack.Send(r.client, req)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", g.Name, id, err)
			}
			if a.Echo == nil {
				return fmt.Errorf("%s for %s: %v", g.Name, id, a)
			}
			r.load.mu.Lock()
			defer r.load.mu.Unlock()
			r.status[fmt.Sprintf("%s %d", g.Name, a.Status)]++
			r.answers = append(r.answers, history.Answer{
				ID: id, Gateway: g.Name, PodUID: a.Echo.PodUID, Process: a.Echo.Process, Begin: begin, End: time.Now(),
			})
			return nil
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests++
		if err != nil {
			r.failed = append(r.failed, fmt.Sprintf("request %d, at %s: %v", n, time.Now().Format("05.000"), err))
		}
	})
}

// generate calls send at a fixed rate until stop, also if send is late.
func (r *rolling) generate(perSecond int, send func(n int)) {
	began := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-r.stop.Done():
			return
		case <-tick.C:
		}
		for ; n < int(time.Since(began).Seconds()*float64(perSecond)); n++ {
			send(n)
		}
	}
}

// webSocket keeps a WebSocket to a sandbox open, with a message now and then, and connects
// again when a drain has cut it. A drain may cut it only after the grace of its gateway,
// within which it could have ended by itself.
func (r *rolling) webSocket(n int, id, pool string) {
	fail := func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.failed = append(r.failed, fmt.Sprintf("WebSocket of %s, at %s: %v", id, time.Now().Format("05.000"), err))
	}
	for ; r.stop.Err() == nil; n++ {
		var ws *websocket.Conn
		var at stack.Gateway
		err := r.any(n, func(g stack.Gateway) (err error) {
			at = g
			ws, err = dialWebSocket(r.t.Context(), g, id, pool)
			return err
		})
		if err != nil {
			fail(err)
			return
		}
		r.mu.Lock()
		r.opened++
		r.mu.Unlock()
		err = r.talk(ws)
		_ = ws.CloseNow()
		if err == nil {
			return // the end of the test
		}
		r.mu.Lock()
		told := r.signalled[at.Name]
		r.cut++
		r.mu.Unlock()
		if after := time.Since(told); told.IsZero() || after < drainGrace || after > drainGrace+10*time.Second {
			fail(fmt.Errorf("%s cut it %v after it was told to stop, with a grace of %v: %w", at.Name, after, drainGrace, err))
		}
	}
}

// talk sends a message every two seconds and expects it back. It returns nil at stop, and an
// error at the end of the connection.
func (r *rolling) talk(ws *websocket.Conn) error {
	read := make(chan error)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() { _ = ws.CloseNow() }()
	over := make(chan struct{})
	defer close(over)
	reading.Go(func() {
		for {
			_, _, err := ws.Read(r.t.Context())
			select {
			case read <- err:
			case <-over:
				return
			}
			if err != nil {
				return
			}
		}
	})
	tick := time.NewTicker(rollingIdle / 2)
	defer tick.Stop()
	for {
		select {
		case <-r.stop.Done():
			return nil
		case err := <-read:
			if err != nil {
				return err
			}
			r.mu.Lock()
			r.messages++
			r.mu.Unlock()
		case <-tick.C:
			if err := ws.Write(r.t.Context(), websocket.MessageText, []byte("still here")); err != nil {
				return err
			}
		}
	}
}

func dialWebSocket(ctx context.Context, g stack.Gateway, id, pool string) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	// A connection of its own: on a kept one net/http might repeat the request.
	ws, _, err := websocket.Dial(ctx, g.URL+"/ws", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		HTTPHeader: http.Header{"X-Sandbox-Id": {id}, "X-Sandbox-Port": {"8000"}, "X-Sandbox-Pool": {pool}},
	})
	return ws, err
}

// Gateways are restarted one after the other under load: no request fails except with a
// connect error, no WebSocket is cut within the grace, and no sandbox in use is released.
func TestRollingRestart(t *testing.T) {
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "often", 6, stack.WithIdleTimeout(0))
	shared.Pool(t, ns, "brief", 6, stack.WithIdleTimeout(rollingIdle))
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	r := &rolling{
		load:      newLoad(t, ns+"/often"),
		client:    &http.Client{Transport: tr, Timeout: time.Minute},
		signalled: map[string]time.Time{},
	}
	r.stop, r.end = context.WithCancel(t.Context())
	t.Cleanup(r.end)
	var inUse []string
	id := func(kind string, i int) string { return fmt.Sprintf("rolling-%s-%d", kind, i) }
	for i := range askedOften {
		shared.Touch(t, id("often", i), ns+"/often")
	}
	var running sync.WaitGroup
	for i := range webSockets {
		inUse = append(inUse, id("ws", i))
		running.Go(func() { r.webSocket(i, id("ws", i), ns+"/brief") })
	}
	for i := range askedRarely {
		inUse = append(inUse, id("rare", i))
		running.Go(func() { r.generate(1, func(n int) { r.request(n+i, id("rare", i), ns+"/brief") }) })
	}
	shared.Eventually(t, time.Minute, "every sandbox to be in use", func() (bool, string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.opened == webSockets && r.requests >= askedRarely, fmt.Sprintf("%d WebSockets, %d requests, failed: %v", r.opened, r.requests, r.failed)
	})
	running.Go(func() { r.generate(1, func(n int) { r.newSandbox(n, id("new", n)) }) })
	running.Go(func() {
		r.generate(rollingRate-askedRarely-1, func(n int) { r.request(n, id("often", n%askedOften), r.pool) })
	})

	restarts, slowest := 0, time.Duration(0)
	for began := time.Now(); time.Since(began) < rollingTime; restarts++ {
		took := r.restart(restarts % len(shared.Up.Gateways))
		slowest = max(slowest, took)
	}
	r.end()
	running.Wait()
	r.sent.Wait()
	r.judge()
	for i, line := range r.failed {
		if i == 20 {
			t.Errorf("… and %d more", len(r.failed)-i)
			break
		}
		t.Error(line)
	}
	for _, id := range inUse {
		claims := record.Claims(id)
		// At the beginning two gateways may have tried to claim one pod: then there is a
		// claim that was never applied, before the one that was.
		made := 0
		for _, c := range claims {
			if !c.Claimed.IsZero() {
				made++
			}
			if !c.Ended.IsZero() {
				t.Errorf("%s was in use all the time, and has ended: %+v", id, c)
			}
		}
		if made != 1 || record.Pods(id) != 1 || record.Sandboxes(id) != 1 {
			t.Errorf("%s was in use all the time and has had %d pods: %+v", id, record.Pods(id), claims)
		}
	}
	t.Logf("%d restarts, the slowest %v; %d requests, %d of them the first of a sandbox; %d failed, %d connect errors; %d WebSockets opened, %d cut at the end of a grace, %d messages; %d sandboxes in use, none released",
		restarts, slowest.Round(time.Millisecond), r.requests, r.first, len(r.failed), r.refused, r.opened, r.cut, r.messages, len(inUse))
	if least := int(rollingTime.Seconds()) * rollingRate; restarts < rollingWant || r.requests < least || r.cut < rollingWant || r.refused == 0 || r.first < rollingWant {
		t.Errorf("that is too little: want %d restarts, %d requests, as many WebSockets cut and first requests as restarts, and some connect errors", rollingWant, least)
	}
}

// newSandbox sends a first request, and ends its sandbox to make room.
func (r *rolling) newSandbox(n int, id string) {
	r.request(n, id, r.pool)
	r.mu.Lock()
	r.first++
	r.mu.Unlock()
	if n < 10 {
		return
	}
	// Its first request was sent ten seconds ago.
	old := strings.TrimSuffix(id, fmt.Sprint(n)) + fmt.Sprint(n-10)
	if err := writes.EndSandbox(r.t.Context(), shared.Client, old, v1alpha1.EndReleased, "make room"); err != nil {
		r.t.Errorf("end %s: %v", old, err)
	}
}

// restart stops a gateway with a signal and waits until it serves again, with a new Envoy.
func (r *rolling) restart(i int) time.Duration {
	g, began := shared.Up.Gateways[i], time.Now()
	now := &stack.Stack{State: shared.State}
	if err := now.Reload(); err != nil {
		r.t.Fatal(err)
	}
	former := now.Up.Gateways[i].Pids
	r.mu.Lock()
	r.signalled[g.Name] = time.Now()
	r.mu.Unlock()
	signal(r.t, former["gateway"], syscall.SIGTERM)
	shared.Eventually(r.t, time.Minute, g.Name+" to serve again", func() (bool, string) {
		if err := now.Reload(); err != nil {
			return false, err.Error()
		}
		pids := now.Up.Gateways[i].Pids
		for name := range former {
			if pids[name] == 0 || pids[name] == former[name] {
				return false, fmt.Sprintf("%s still has %v", g.Name, pids)
			}
		}
		req, err := stack.Request{ID: "rolling-often-0"}.Build(r.t.Context(), g.URL)
		if err != nil {
			return false, err.Error()
		}
		a, err := stack.Send(r.client, req)
		if err != nil {
			return false, err.Error()
		}
		if a.Echo == nil {
			// Its Envoy is started only when the gateway serves.
			r.t.Errorf("%s answered %v before it served", g.Name, a)
		}
		return a.Echo != nil, a.String()
	})
	return time.Since(began)
}
