package sandboxd

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/processpb"
	"github.com/sandlane/sandlane/test/bubble"
)

// stubFreezer notes what it is asked for.
type stubFreezer struct {
	during func()

	mu      sync.Mutex // guards the rest
	asked   []string
	fails   error
	escapes bool // each look finds something that runs
}

func (f *stubFreezer) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = err
}

func (f *stubFreezer) escape(escapes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.escapes = escapes
}

// orders returns what it was asked for.
func (f *stubFreezer) orders() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *stubFreezer) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = nil
}

func (f *stubFreezer) Freeze(context.Context) error {
	if f.during != nil {
		f.during()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "freeze")
	return f.fails
}

func (f *stubFreezer) Refreeze(context.Context) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "refreeze")
	return f.escapes, f.fails
}

func (f *stubFreezer) Thaw() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "thaw")
	return f.fails
}

func (f *stubFreezer) Kill() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "kill")
	return f.fails
}

// order sends a signed order for the sandbox and returns the status.
func (g *gateway) order(a *agent, order string, number int64, headers ...string) int {
	a.t.Helper()
	_, answer := a.do("GET", "/init", "")
	var challenge struct{ Nonce string }
	if err := json.Unmarshal([]byte(answer), &challenge); err != nil || challenge.Nonce == "" {
		a.t.Fatalf("GET /init: %s: %v", answer, err)
	}
	message := fmt.Sprintf("sandlane %s 1\n%q\n%q\n%q\n%d\n", order, g.podUID, challenge.Nonce, "i0", number)
	signature := base64.StdEncoding.EncodeToString(ed25519.Sign(g.private, []byte(message)))
	all := append([]string{"Sandlane-Sandbox-Id", "i0", "Sandlane-Pause-Order", fmt.Sprint(number), "Sandlane-Init-Signature", signature}, headers...)
	res, _ := a.do("POST", "/"+order, "", all...)
	return res.StatusCode
}

// frozenAgent is an initialised sandboxd with a stub for its freezer.
func frozenAgent(t *testing.T) (*gateway, *agent, *stubFreezer) {
	g, f := newGateway("pod-1"), &stubFreezer{}
	a := newAgent(t, g.options(Options{Freezer: f}))
	g.init(a, 204, "", `{}`)
	return g, a, f
}

// An order counts for one pod, process, sandbox, kind and number; no program in
// the sandbox can make one, and without a key there are none.
func TestOrdersAreSigned(t *testing.T) {
	g, a, f := frozenAgent(t)
	for what, headers := range map[string][]string{
		"no signature":    {"Sandlane-Init-Signature", ""},
		"another number":  {"Sandlane-Pause-Order", "8"},
		"another sandbox": {"Sandlane-Sandbox-Id", "i1"},
	} {
		if status := g.order(a, "freeze", 7, headers...); status != 401 {
			t.Errorf("%s: %d", what, status)
		}
	}
	if status := (&gateway{"pod-2", g.private}).order(a, "freeze", 7); status != 401 {
		t.Errorf("for another pod: %d", status)
	}
	if status := newGateway("pod-1").order(a, "freeze", 7); status != 401 {
		t.Errorf("by another key: %d", status)
	}
	if status := g.order(a, "freeze", -1); status != 400 {
		t.Errorf("with a negative number: %d", status)
	}
	if status := g.order(a, "freeze", 0); status != 409 { // that of a sandbox that was never paused
		t.Errorf("with the number 0: %d", status)
	}
	open := newAgent(t, Options{Freezer: f})
	if status := g.order(open, "freeze", 7); status != 401 {
		t.Errorf("without a key: %d", status)
	}
	without := newAgent(t, g.options(Options{}))
	g.init(without, 204, "", `{}`)
	if status := g.order(without, "freeze", 7); status != 501 {
		t.Errorf("without a freezer: %d", status)
	}
	if len(f.orders()) != 0 {
		t.Errorf("the freezer was asked to %v", f.orders())
	}
}

// Before /init nothing can be frozen, which is not the answer to an order that is too
// old; an unfreeze is taken, or a gateway that asks before it initialises could not go on,
// and counts against older freezes.
func TestOrdersBeforeInit(t *testing.T) {
	g, f := newGateway("pod-1"), &stubFreezer{}
	a := newAgent(t, g.options(Options{Freezer: f}))
	for i, c := range []struct {
		order  string
		number int64
		status int
	}{{"freeze", 7, 412}, {"unfreeze", 7, 202}, {"unfreeze", 6, 409}, {"freeze", 8, 412}, {"unfreeze", 7, 202}} {
		if status := g.order(a, c.order, c.number); status != c.status {
			t.Errorf("%d: %s of number %d: %d, want %d", i, c.order, c.number, status, c.status)
		}
	}
	g.init(a, 204, "", `{}`)
	for _, number := range []int64{6, 7} {
		if status := g.order(a, "freeze", number); status != 409 {
			t.Errorf("freeze of number %d: %d", number, status)
		}
	}
	if status := g.order(a, "freeze", 8); status != 204 || len(f.orders()) != 1 {
		t.Errorf("freeze: %d, the freezer was asked to %v", status, f.orders())
	}
}

// The latest number wins, whatever order it arrives in; the same again is no news.
func TestOlderOrdersAreRefused(t *testing.T) {
	g, a, f := frozenAgent(t)
	for i, c := range []struct {
		order  string
		number int64
		status int
	}{
		{"unfreeze", 0, 204}, {"freeze", 0, 409}, {"freeze", 1, 204}, // a probe, and the first pause
		{"unfreeze", 2, 204}, {"freeze", 1, 409}, {"freeze", 2, 409}, {"freeze", 3, 204}, {"freeze", 3, 204},
		{"unfreeze", 3, 409}, {"freeze", 4, 204}, {"unfreeze", 9, 204}, {"unfreeze", 9, 204}, {"freeze", 4, 409}, {"freeze", 8, 409},
	} {
		if status := g.order(a, c.order, c.number); status != c.status {
			t.Errorf("%d: %s of number %d: %d, want %d", i, c.order, c.number, status, c.status)
		}
	}
	if got := fmt.Sprint(f.orders()); got != "[freeze thaw freeze refreeze refreeze thaw]" {
		t.Errorf("the freezer was asked to %s", got)
	}
}

// While it is frozen a sandbox answers nothing but its control plane; streams are cut
// off, by which SDKs know, before anything is stopped.
func TestFrozenAnswersNothing(t *testing.T) {
	g, a, f := frozenAgent(t)
	stream := a.start(shell("sleep 1000"))
	over, cut := make(chan error, 1), false
	go func() {
		for stream.Receive() {
		}
		over <- stream.Err()
	}()
	f.during = func() {
		select {
		case err := <-over:
			cut = err != nil && !connect.IsWireError(err) // sandboxd answers neither an end of the command nor an error
		case <-time.After(patience):
		}
	}
	if status := g.order(a, "freeze", 1); status != 204 || !cut {
		t.Fatalf("freeze: %d, the stream was cut off: %v", status, cut)
	}
	for _, path := range []string{"/health", "/metrics", "/files?path=/etc/hostname", "/envs"} {
		if res, _ := a.do("GET", path, ""); res.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	_, err := a.processes.List(t.Context(), connect.NewRequest(&processpb.ListRequest{}))
	if err == nil {
		t.Error("a frozen sandbox lists its processes")
	}
	if status := g.order(a, "unfreeze", 2); status != 204 {
		t.Fatalf("unfreeze: %d", status)
	}
	a.want(204, "", "GET", "/health", "")
}

// A freeze that fails leaves the sandbox as it was.
func TestFailedFreeze(t *testing.T) {
	g, a, f := frozenAgent(t)
	f.fail(errors.New("no"))
	if status := g.order(a, "freeze", 1); status != 500 {
		t.Fatalf("freeze: %d", status)
	}
	a.want(204, "", "GET", "/health", "")
	f.fail(nil)
	if status := g.order(a, "freeze", 1); status != 204 {
		t.Fatalf("freeze again: %d", status)
	}
	f.fail(errors.New("no"))
	if status := g.order(a, "unfreeze", 2); status != 500 {
		t.Fatalf("unfreeze: %d", status)
	}
	if res, _ := a.do("GET", "/health", ""); res.StatusCode != http.StatusBadGateway {
		t.Errorf("it answers although it may be frozen: %d", res.StatusCode)
	}
	f.fail(nil)
	if status := g.order(a, "unfreeze", 2); status != 204 {
		t.Fatalf("unfreeze again: %d", status)
	}
}

// stubHolder holds nothing, or fails to.
type stubHolder struct{ fails error }

func (h *stubHolder) Hold(context.Context) error { return h.fails }
func (h *stubHolder) Continue()                  {}

// While a sandbox is frozen it is looked at each second, also after a look that failed,
// and at each repeated order; a thaw ends that, also one that fails.
func TestLooksAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &stubFreezer{}
		x := newSuspender(f, &stubHolder{}, io.Discard)
		x.giveUp = func() { t.Error("it gives the sandbox up") }
		asked := func(what, want string) {
			t.Helper()
			if got := strings.Join(f.orders(), " "); got != want {
				t.Errorf("%s: the freezer was asked to %s, want %s", what, got, want)
			}
			f.forget()
		}
		order := func(give func(context.Context, int64) error, number int64, fails bool) {
			t.Helper()
			if err := give(t.Context(), number); (err != nil) != fails {
				t.Errorf("order %d: %v", number, err)
			}
		}
		order(x.freeze, 1, false)
		time.Sleep(2*refreezeEvery + refreezeEvery/2)
		asked("frozen", "freeze refreeze refreeze")
		f.fail(errors.New("no"))
		order(x.freeze, 1, true)
		time.Sleep(refreezeEvery)
		f.fail(nil)
		time.Sleep(refreezeEvery)
		asked("a look that failed", "refreeze refreeze refreeze")
		if !x.refusing.Load() {
			t.Error("it is served")
		}
		f.fail(errors.New("no"))
		order(x.unfreeze, 2, true)
		f.fail(nil)
		time.Sleep(5 * refreezeEvery)
		asked("a thaw that failed", "thaw")
		order(x.unfreeze, 2, false)
		time.Sleep(5 * refreezeEvery)
		asked("thawed", "thaw")
		order(x.freeze, 3, false)
		x.close()
		time.Sleep(5 * refreezeEvery)
		asked("ended", "freeze thaw")
	})
}

// A sandbox in which something goes on at ten of 64 looks is given up, whatever looks come
// between them; one in which something was continued less often is not.
func TestEscapes(t *testing.T) {
	for name, c := range map[string]struct {
		escapes, clean int // looks, again and again
		given          bool
	}{
		"at each look":              {1, 0, true},
		"but for one look in ten":   {9, 1, true},
		"at every second look":      {1, 1, true},
		"at one look in six":        {1, 5, true},
		"at nine, then not for 55":  {9, 55, false},
		"at one look in seven":      {1, 6, true},
		"at one look in eight":      {1, 7, false},
		"at none but the first one": {1, 1000, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f, given := &stubFreezer{}, atomic.Int32{}
				x := newSuspender(f, &stubHolder{}, io.Discard)
				x.giveUp = func() { given.Add(1) }
				defer x.close()
				if err := x.freeze(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				for look := 0; look < 200 && given.Load() == 0; look++ {
					f.escape(look%(c.escapes+c.clean) < c.escapes)
					time.Sleep(refreezeEvery)
					synctest.Wait()
					if look < maxEscapes-2 && given.Load() != 0 {
						t.Errorf("it was given up at look %d", look)
					}
				}
				if (given.Load() == 1) != c.given {
					t.Errorf("it was given up %d times", given.Load())
				}
			})
		})
	}
}

// While a process takes long to be started a freeze fails, and clients are served.
func TestFreezeBesideAFork(t *testing.T) {
	f := &stubFreezer{}
	x := newSuspender(f, &stubHolder{errors.New("one is being started")}, io.Discard)
	if err := x.freeze(t.Context(), 1); err == nil || x.refusing.Load() || len(f.orders()) > 0 {
		t.Errorf("%v; it refuses requests: %v; the freezer was asked to %v", err, x.refusing.Load(), f.orders())
	}
}
