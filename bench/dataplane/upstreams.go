package dataplane

import (
	"context"
	"fmt"
	"strconv"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/test/ports"
)

// upstreams are the sandboxes' servers of the three sides, one for each: after its turn an
// Envoy keeps its connections to all sandboxes for some seconds, and those of two Envoys with
// 10,000 each exceed one process's limit of open files.
type upstreams struct{ plain, floor, ours upstream }

// upstream answers at one port of every loopback address.
type upstream struct {
	*suite.Process
	port int
}

// startUpstreams starts all three, or none.
func startUpstreams(ctx context.Context, e *suite.Env) (u upstreams, err error) {
	for _, s := range []struct {
		name string
		at   *upstream
	}{{"plain", &u.plain}, {"floor", &u.floor}, {"sandlane", &u.ours}} {
		if *s.at, err = startUpstream(ctx, e, "upstream-"+s.name); err != nil {
			u.stop()
			return upstreams{}, err
		}
	}
	return u, nil
}

func startUpstream(ctx context.Context, e *suite.Env, name string) (upstream, error) {
	port, err := ports.Free()
	if err != nil {
		return upstream{}, err
	}
	p, err := e.Start(ctx, name, []string{"GOMAXPROCS=1"}, suite.Answers("tcp", fmt.Sprintf("127.0.0.1:%d", port)),
		e.Self, "upstream", "--port", strconv.Itoa(port))
	return upstream{p, port}, err
}

func (u *upstreams) stop() {
	u.plain.Stop()
	u.floor.Stop()
	u.ours.Stop()
}
