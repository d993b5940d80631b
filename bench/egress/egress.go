package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/test/ports"
	"github.com/sandlane/sandlane/test/result"
)

const (
	// downloaded is how much one download has.
	downloaded = 64 << 20
	// first is the sandbox whose names are used for the first time; sandbox 0 has the rounds.
	first = 1
)

// Section returns the section of this package.
func Section() suite.Section {
	return suite.Section{Name: "egress", About: "sandboxes' HTTPS requests by the egress process, beside direct ones and a CONNECT proxy", Run: run}
}

// world is what a run has started.
type world struct {
	direct, connect, passed, intercepted way
	names                                string // the name server's address
	sandboxes                            int
	started                              []*suite.Process
}

func run(ctx context.Context, e *suite.Env) error {
	w, err := start(ctx, e)
	defer func() {
		for _, p := range w.started {
			p.Stop()
		}
	}()
	if err != nil {
		return err
	}
	if err := w.firstUses(ctx, e); err != nil {
		return fmt.Errorf("first uses: %w", err)
	}
	for _, c := range []struct {
		name string
		kept bool
	}{{"kept", true}, {"new", false}} {
		if err := w.requests(ctx, e, c.name, c.kept); err != nil {
			return fmt.Errorf("%s connections: %w", c.name, err)
		}
	}
	if err := w.downloads(ctx, e); err != nil {
		return fmt.Errorf("downloads: %w", err)
	}
	return w.fleet(ctx, e)
}

// start starts the host and both proxies.
func start(ctx context.Context, e *suite.Env) (*world, error) {
	w := &world{sandboxes: e.Fleets[0]}
	dir, err := e.Folder("egress")
	if err != nil {
		return w, err
	}
	by, err := writeAuthority(dir)
	if err != nil {
		return w, err
	}
	trust := x509.NewCertPool()
	trust.AddCert(by.Cert)
	var port [4]int
	for i := range port {
		if port[i], err = ports.Free(); err != nil {
			return w, err
		}
	}
	internet, connect, https, names := port[0], port[1], port[2], port[3]
	w.names = local(names)
	begin := func(name string, https int, ready func(context.Context) error) (*suite.Process, error) {
		p, err := e.Start(ctx, "egress-"+name, nil, ready, e.Self, "egress", name, "--dir", dir,
			"--https", strconv.Itoa(https), "--names", strconv.Itoa(names), "--internet", strconv.Itoa(internet), "--sandboxes", strconv.Itoa(w.sandboxes))
		if err == nil {
			w.started = append(w.started, p)
		}
		return p, err
	}
	if _, err := begin("internet", internet, suite.Answers("tcp4", local(internet))); err != nil {
		return w, err
	}
	tunnel, err := begin("connect", connect, suite.Answers("tcp4", local(connect)))
	if err != nil {
		return w, err
	}
	ours, err := begin("proxy", https, w.served)
	if err != nil {
		return w, err
	}
	w.direct = way{name: "direct", address: local(internet), trust: trust}
	w.connect = way{name: "connect", address: local(connect), tunnel: true, trust: trust, between: tunnel}
	w.passed = way{name: "passed", address: local(https), trust: trust, between: ours}
	w.intercepted = way{name: "intercepted", address: local(https), want: "Bearer " + secret, trust: trust, between: ours}
	return w, nil
}

// served returns nil once every sandbox's questions are answered.
func (w *world) served(ctx context.Context) error {
	for i := range w.sandboxes {
		if err := ask(ctx, i, w.names, open); err != nil {
			return err
		}
	}
	return nil
}

// inTurns calls one for each way and its host, as often as a ratio takes.
func (w *world) inTurns(ctx context.Context, e *suite.Env, one func(ctx context.Context, w way, host string) error) error {
	var sides []func(context.Context, int) error
	for _, side := range []struct {
		way
		host string
	}{{w.direct, open}, {w.connect, open}, {w.passed, open}, {w.intercepted, ruled(0, 0)}} {
		sides = append(sides, func(ctx context.Context, _ int) error {
			if err := one(ctx, side.way, side.host); err != nil {
				return fmt.Errorf("%s: %w", side.name, err)
			}
			return nil
		})
	}
	return suite.InTurns(ctx, e.Pairs, sides...)
}

// requests measures each way on kept connections, or on a new one for each request.
func (w *world) requests(ctx context.Context, e *suite.Env, name string, kept bool) error {
	row := "egress/" + name + "/"
	p50s := map[string][]float64{}
	err := w.inTurns(ctx, e, func(ctx context.Context, w way, host string) error {
		p50, cpu, err := w.round(ctx, host, kept, e.PairTime/5)
		if err != nil {
			return err
		}
		ms := p50.Seconds() * 1000
		p50s[w.name] = append(p50s[w.name], ms)
		e.Add(row+w.name+"/p50", "ms", "less", ms)
		if w.between != nil {
			e.Add(row+w.name+"/server-cpu", "µs/request", "less", float64(cpu.Nanoseconds())/1000)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, direct := range p50s["direct"] {
		allowed := 1.5*direct + 0.3
		e.Add(row+"ratio/passed-vs-allowed", "ratio", "less", p50s["passed"][i]/allowed)
		e.Add(row+"ratio/intercepted-vs-allowed", "ratio", "less", p50s["intercepted"][i]/(allowed+1))
	}
	median := func(name string) float64 { return result.Median(p50s[name]) }
	e.Progress("%s connections, p50: direct %.2f ms, CONNECT %.2f, passed %.2f, intercepted %.2f", name, median("direct"), median("connect"), median("passed"), median("intercepted"))
	return nil
}

// downloads measures what bytes cost.
func (w *world) downloads(ctx context.Context, e *suite.Env) error {
	return w.inTurns(ctx, e, func(ctx context.Context, w way, host string) error {
		t := w.transport(0, true)
		defer t.CloseIdleConnections()
		before, err := w.used()
		if err != nil {
			return err
		}
		took, err := w.download(ctx, t, host, downloaded)
		if err != nil {
			return err
		}
		after, err := w.used()
		if err != nil {
			return err
		}
		const mb = downloaded / 1e6
		row := "egress/download/" + w.name + "/"
		e.Add(row+"rate", "MB/s", "more", mb/took.Seconds())
		if w.between != nil {
			e.Add(row+"server-cpu", "ms/MB", "less", (after-before).Seconds()*1000/mb)
		}
		return nil
	})
}

// firstUses measures the first use of a host with a rule, from the question for its address
// to the answer to a request, and the next one.
func (w *world) firstUses(ctx context.Context, e *suite.Env) error {
	for i := first; i < first+min(e.Claims, w.sandboxes-first); i++ {
		for _, which := range []string{"first", "second"} {
			t := w.intercepted.transport(i, false)
			begun := time.Now()
			err := ask(ctx, i, w.names, ruled(i, 0))
			if err == nil {
				_, err = w.intercepted.get(ctx, t, ruled(i, 0))
			}
			if err != nil {
				return err
			}
			e.Add("egress/use/"+which+"/latency", "ms", "less", time.Since(begun).Seconds()*1000)
		}
	}
	return nil
}

// fleet uses every name of every sandbox, keeps a connection open for each sandbox, and
// measures the memory of the process before, with these connections, and after.
func (w *world) fleet(ctx context.Context, e *suite.Env) error {
	row := fmt.Sprintf("egress/fleet-%d/sandlane/", w.sandboxes)
	memory := func(name string) (float64, error) {
		bytes, err := w.intercepted.between.Memory()
		if err == nil {
			e.Add(row+name, "MB", "less", bytes/(1<<20))
		}
		return bytes, err
	}
	if _, err := memory("memory-before"); err != nil {
		return err
	}
	err := suite.Each(ctx, w.sandboxes, func(ctx context.Context, i int) error {
		t := w.intercepted.transport(i, false)
		for j := range ruledNames {
			if _, err := w.intercepted.get(ctx, t, ruled(i, j)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	used, err := memory("memory")
	if err != nil {
		return err
	}
	kept := make([]*http.Transport, w.sandboxes)
	defer func() {
		for _, t := range kept {
			if t != nil {
				t.CloseIdleConnections()
			}
		}
	}()
	err = suite.Each(ctx, w.sandboxes, func(ctx context.Context, i int) error {
		kept[i] = w.intercepted.transport(i, true)
		_, err := w.intercepted.get(ctx, kept[i], ruled(i, 0))
		return err
	})
	if err != nil {
		return err
	}
	open, err := memory("memory-with-a-connection-each")
	e.Progress("%d sandboxes: %.0f MB once each has used %d names, %.0f MB with a connection each", w.sandboxes, used/(1<<20), ruledNames, open/(1<<20))
	return errors.Join(err, w.intercepted.between.Ended())
}
