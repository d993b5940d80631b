package chaos

import (
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// formerPodLimit is how long the requests in a pod that a sandbox has given up may wait once
// the controller works. The sweep would stop the pod after a minute at the earliest.
const formerPodLimit = 30 * time.Second

// A sandbox that hibernates, is resumed in another pod and ends, all while the controller
// does nothing, leaves its former pod frozen. The requests that this pod has got are answered
// as soon as the controller works again.
func TestRequestsInAFormerPodAtAnEnd(t *testing.T) {
	h := newHibernating(t)
	s := h.made(shared.Up.Gateways[0])
	var answers [6]held
	var all sync.WaitGroup
	ask := func(i int, path string) (a held) {
		req, err := stack.Request{ID: s.id, Path: path}.Build(t.Context(), shared.Up.Gateways[i%len(shared.Up.Gateways)].URL)
		if err == nil {
			a.Answer, err = stack.Send(newHTTP(t), req)
		}
		a.err = err
		return a
	}
	for i := range answers {
		all.Go(func() { answers[i] = ask(i, "/sleep?seconds=50") })
	}
	for i := range shared.Up.Gateways { // then the others have begun too
		if a := ask(i, "/sleep?seconds=0.5"); a.err != nil || a.Status != http.StatusOK {
			t.Fatal(a)
		}
	}

	pid := controllerPID(t, 0)
	if err := signalOurs(pid, "controller", syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := sync.OnceValue(func() error { return signalOurs(pid, "controller", syscall.SIGCONT) })
	t.Cleanup(func() { _ = goOn() })
	h.want(shared.Up.Gateways[1], hibernate, s.id, http.StatusNoContent)
	h.resumed(shared.Up.Gateways[1], s)
	h.kill(shared.Up.Gateways[1], s)
	if err := goOn(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	all.Wait()
	if took := time.Since(began); took > formerPodLimit {
		t.Errorf("the requests ended %v after the controller worked again", took)
	}
	for i, a := range answers {
		if a.err != nil || a.Status == http.StatusOK {
			t.Errorf("request %d: %v, %v", i, a.Answer, a.err)
		}
	}
	h.gaveUp(s)
	h.nothingLeft()
}
