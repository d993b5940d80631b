package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// pausing pauses one sandbox after the other by the REST API, and resumes it so or by a request.
type pausing struct {
	t       *testing.T
	ns, key string
	load    *load
}

// The gateway that pauses or resumes a sandbox is killed at each step of that, and the
// controller before it has written the result. The next process completes what is written;
// no process of a paused sandbox answers, and after the resume its processes go on.
func TestKilledAtEachStepOfAPause(t *testing.T) {
	p := &pausing{t: t, ns: shared.Namespace(t), load: newLoad(t, "")}
	var err error
	if p.key, err = shared.Key(t.Context(), p.ns); err != nil {
		t.Fatal(err)
	}
	shared.Pool(t, p.ns, "resting", 2, stack.WithIdleTimeout(0), stack.WithFreezer())
	for n, step := range []struct {
		process, point, op string
		paused             bool // whether the sandbox is paused in the end
	}{
		{"gateway", "pause/probed", pause, false}, {"gateway", "pause/written", pause, true}, {"gateway", "pause/frozen", pause, true},
		{"gateway", "pause/resumed", resume, false}, {"gateway", "pause/thawed", resume, false},
		{"gateway", "pause/resumed", byRequest, false}, {"gateway", "pause/thawed", byRequest, false},
		{"controller", "sandbox/enforced", pause, true}, {"controller", "sandbox/enforced", resume, false},
	} {
		t.Run(fmt.Sprintf("%d-%s", n, strings.ReplaceAll(step.point, "/", "-")), func(t *testing.T) {
			p.t = t
			i := n % len(shared.Up.Gateways)
			by, other := shared.Up.Gateways[i], shared.Up.Gateways[(i+1)%len(shared.Up.Gateways)]
			more := ""
			if step.op == byRequest {
				more = `,"autoPause":true,"autoResume":{"enabled":true}`
			}
			id, _ := p.createWithToken(other, more)
			process := p.served(id)
			if step.op != pause {
				p.want(other, pause, id, http.StatusNoContent)
				p.settled(id, true)
			}
			if step.process == "controller" {
				former := controllerPID(t, 0)
				arm(t, "controller", step.point, "kill")
				p.want(by, step.op, id, map[string]int{pause: http.StatusNoContent, resume: http.StatusCreated}[step.op])
				waitHit(t, "controller", step.point)
				controllerPID(t, former)
			} else {
				former := gatewayPID(t, i, 0)
				arm(t, by.Name, step.point, "kill")
				if step.op == byRequest {
					if a := p.load.ask(newHTTP(t), by, id); a.Echo != nil {
						t.Errorf("it is answered with %v", a)
					}
				} else if a, err := p.rest(by, step.op, id); err == nil && a.Status < 300 {
					t.Errorf("it is answered with %v", a)
				}
				waitHit(t, by.Name, step.point)
				gatewayPID(t, i, former)
			}
			p.settled(id, step.paused)
			if step.paused {
				for _, g := range shared.Up.Gateways {
					p.silent(g, id)
				}
				p.want(other, resume, id, http.StatusCreated)
				p.settled(id, false)
			}
			if is := p.served(id); is != process {
				t.Errorf("the process %s answers, and %s did before", is, process)
			}
			if a, err := other.REST(t.Context(), nil, p.key, http.MethodDelete, "/sandboxes/"+id, ""); err != nil || a.Status != http.StatusNoContent {
				t.Errorf("kill: %v, %v", a, err)
			}
		})
	}
	p.t = t
	p.load.judge()
}

// The operations on a sandbox; hibernate is a pause without the memory, byRequest a resume by
// a request to the sandbox, which is no call of the REST API.
const pause, hibernate, resume, byRequest = "pause", "hibernate", "connect", "a request"

func (p *pausing) rest(g stack.Gateway, op, id string) (stack.Answer, error) {
	path, body := op, `{"timeout":300}`
	switch op {
	case pause:
		body = ""
	case hibernate:
		path, body = pause, `{"memory":false}`
	}
	return g.REST(p.t.Context(), nil, p.key, http.MethodPost, "/sandboxes/"+id+"/"+path, body)
}

// want repeats a request until the gateway gives the wanted answer: the gateway may have been
// started just now, or the sandbox may be between two states.
func (p *pausing) want(g stack.Gateway, op, id string, status int) {
	p.t.Helper()
	shared.Eventually(p.t, 30*time.Second, fmt.Sprintf("%s of %s by %s to be answered with %d", op, id, g.Name, status), func() (bool, string) {
		a, err := p.rest(g, op, id)
		return err == nil && a.Status == status, fmt.Sprint(a, err)
	})
}

// createWithToken makes a sandbox and returns its ID and the token for sandboxd; more is what
// the body has besides.
func (p *pausing) createWithToken(g stack.Gateway, more string) (id, token string) {
	p.t.Helper()
	var made struct{ SandboxID, EnvdAccessToken string }
	shared.Eventually(p.t, time.Minute, "a create by "+g.Name, func() (bool, string) {
		a, err := g.REST(p.t.Context(), nil, p.key, http.MethodPost, "/v2/sandboxes", `{"templateID":"resting","timeout":300`+more+`}`)
		return err == nil && a.Status == http.StatusCreated && json.Unmarshal(a.Body, &made) == nil, fmt.Sprint(a, err)
	})
	return made.SandboxID, made.EnvdAccessToken
}

// served waits until every gateway has the sandbox's answer, and returns its process.
func (p *pausing) served(id string) (process string) {
	p.t.Helper()
	for _, g := range shared.Up.Gateways {
		c := newHTTP(p.t)
		shared.Eventually(p.t, 30*time.Second, id+" to be served by "+g.Name, func() (bool, string) {
			a := p.load.ask(c, g, id)
			if a.Echo == nil {
				return false, a.String()
			}
			if process != "" && a.Echo.Process != process {
				p.t.Errorf("%s has the processes %s and %s", id, process, a.Echo.Process)
			}
			process = a.Echo.Process
			return true, ""
		})
	}
	return process
}

// silent checks that the gateway itself answers for a paused sandbox.
func (p *pausing) silent(g stack.Gateway, id string) {
	p.t.Helper()
	c := newHTTP(p.t)
	shared.Eventually(p.t, 30*time.Second, g.Name+" to refuse requests for "+id, func() (bool, string) {
		a := p.load.ask(c, g, id)
		if a.Echo != nil {
			p.t.Errorf("%s, which is paused, answers through %s", id, g.Name)
		}
		return a.Status == http.StatusBadGateway, a.String()
	})
}

// settled waits until the sandbox's status says that what its spec asks for is carried out.
func (p *pausing) settled(id string, paused bool) {
	p.t.Helper()
	shared.Eventually(p.t, time.Minute, fmt.Sprintf("%s to be paused: %v", id, paused), func() (bool, string) {
		s, found := shared.Sandbox(p.t, id)
		done := found && s.Spec.Paused == paused && s.Spec.End == nil && s.Status.ObservedGeneration == s.Generation
		if paused {
			return done && v1alpha1.StateOfPause(&s) == v1alpha1.ReasonFrozen, fmt.Sprintf("%+v", s.Status)
		}
		return done && v1alpha1.Awake(&s) && s.Status.Phase == v1alpha1.SandboxRunning, fmt.Sprintf("%+v", s.Status)
	})
}
