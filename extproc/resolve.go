package extproc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// maxRounds bounds how often one request resolves. It resolves again when the index was
// behind, when the sandbox changed meanwhile, and when its route was evicted.
const maxRounds = 6

// maxResumes bounds how often one request resumes its sandbox, which each time was
// paused again before the request was answered.
const maxResumes = 3

// miss resolves, authorises and activates until the route can be taken from the
// cache. What was read is only put into the cache, never answered with: Put refuses a
// route whose claim has ended meanwhile.
func (s *Server) miss(ctx context.Context, c *call) error {
	// Cloned, so that a map that keeps the ID does not keep the whole message in memory.
	id := strings.Clone(c.target.ID)
	c.target.ID = id
	m := &missState{}
	if s.failedUpstreams.take(id, time.Now()) {
		m.doubt = upstreamFailed
	}
	defer m.leave()
	c.outcome = outcomeResolved
	for range maxRounds {
		if c.held != "" {
			if answered, err := s.awaitRelease(ctx, c, m); answered || err != nil {
				return err
			}
			continue
		}
		token := s.o.Cache.Begin(id)
		res, err := s.resolve(ctx, c, m)
		if err != nil {
			return err
		}
		if res.State == routing.Running {
			if res.Route == nil || res.Route.SandboxID != id {
				return fmt.Errorf("resolving %s: the answer is not about it", id)
			}
			route := *res.Route
			route.Use = s.o.Activity.ClaimUse(route.SandboxID, route.ClaimID)
			if !s.o.Cache.Put(token, &route) {
				m.refused, m.doubt = res.Route, indexBehind
				continue
			}
		} else if err := s.authoriseAndActivate(ctx, c, m, res); err != nil {
			if !errors.Is(err, routing.ErrExists) {
				return err
			}
			m.doubt = indexBehind
			continue
		}
		if answered, err := s.fromCache(c); answered || err != nil {
			return err
		}
	}
	return unavailable(reasonUnsettled, messageUnavailable, nil)
}

// awaitRelease parks the request until the idle release that it has met is decided, then
// answers if it was called off.
func (s *Server) awaitRelease(ctx context.Context, c *call, m *missState) (answered bool, err error) {
	claim := c.held
	c.held, c.outcome = "", outcomeHeld
	if err := s.wait(c, m, c.heldIn); err != nil {
		return false, err
	}
	if m.unpark == nil {
		m.unpark = s.o.Activity.Park(c.target.ID)
	}
	if err := s.raiseMessageTimeout(c); err != nil {
		return false, err
	}
	if err := s.o.Holds.Await(ctx, c.target.ID, claim); err != nil {
		return false, err
	}
	return s.fromCache(c)
}

// doubt says how far a request believes the index in its next round. It only grows, but for
// upstreamFailed, which one read of the API server turns into indexBehind.
type doubt int

const (
	// noDoubt: the index is believed.
	noDoubt doubt = iota
	// indexBehind: the index has been found behind. It is believed only if it names a running
	// pod, and not the refused route; otherwise the API server is asked.
	indexBehind
	// upstreamFailed: an upstream failure was reported. The API server is asked whatever the
	// index says, and the index is believed only if that cannot be done.
	upstreamFailed
)

// missState is what a request has learnt on its way.
type missState struct {
	doubt   doubt
	refused *routecache.Route // by the cache, as newer than what the index has seen; nil at first
	resumes int               // that this request has begun
	// unpark ends the parking; nil while not parked. The sandbox counts as in use until
	// the end of miss, so that there is no gap before the use.
	unpark func()
	// resolved ends what Activity.Resolving began, also at the end of miss; nil if the
	// API server was not asked.
	resolved func()
	// leavePlace gives back the place among the waiting requests of placeIn, a namespace; nil
	// without a place.
	leavePlace func()
	placeIn    string
}

func (m *missState) leave() {
	if m.unpark != nil {
		m.unpark()
	}
	if m.resolved != nil {
		m.resolved()
	}
	if m.leavePlace != nil {
		m.leavePlace()
	}
}

// wait takes the request's place among those of a namespace that wait, and keeps it until the
// end of miss. A place that it has among another namespace's is given back.
func (s *Server) wait(c *call, m *missState, namespace string) error {
	if m.leavePlace != nil {
		if m.placeIn == namespace {
			return nil
		}
		m.leavePlace()
		m.leavePlace = nil
	}
	_, err := s.verify(c)
	leave, err := s.o.Room.Wait(namespace, c.target.ID, err == nil)
	if err != nil {
		return fmt.Errorf("wait for sandbox %s: %w", c.target.ID, err)
	}
	m.leavePlace, m.placeIn = leave, namespace
	return nil
}

// resolve asks the index, and the API server where the index cannot know.
func (s *Server) resolve(ctx context.Context, c *call, m *missState) (routing.Answer, error) {
	start := time.Now()
	res := s.o.Resolver.Lookup(c.target.ID)
	s.metrics.resolved(sourceIndex, start)
	running := res.State == routing.Running && !sameRoute(res.Route, m.refused)
	if m.doubt == noDoubt || m.doubt == indexBehind && running {
		return res, nil
	}
	caller, namespace := "", ""
	if owner, err := s.verify(c); err == nil {
		caller, namespace = owner.Namespace+"/"+owner.Team, owner.Namespace
	}
	if m.leavePlace == nil {
		if err := s.wait(c, m, namespace); err != nil {
			return routing.Answer{}, err
		}
	}
	if m.resolved == nil {
		m.resolved = s.o.Activity.Resolving(c.target.ID)
	}
	if err := s.raiseMessageTimeout(c); err != nil {
		return routing.Answer{}, err
	}
	start = time.Now()
	live, err := s.o.Resolver.Resolve(ctx, c.target.ID, caller)
	s.metrics.resolved(sourceLive, start)
	if err != nil && ctx.Err() == nil && m.doubt == upstreamFailed && running {
		// The failed upstream does not prove the index's route wrong, and no read did. The
		// route is as safe as that of any request while the API server is away.
		live, err = res, nil
	}
	m.doubt = indexBehind
	return live, err
}

// sameRoute reports whether both come from the same state of the same pod.
func sameRoute(a, b *routecache.Route) bool {
	return a != nil && b != nil && a.Same(b) && a.PodRV == b.PodRV && a.Addr == b.Addr
}

// authoriseAndActivate authorises the activation of a sandbox without a running pod, and waits
// for it. It returns routing.ErrExists if the state must be read anew, from the API
// server, before anything is decided.
func (s *Server) authoriseAndActivate(ctx context.Context, c *call, m *missState, res routing.Answer) error {
	r := routing.Request{ID: c.target.ID, Namespace: res.Namespace, Env: res.Env, Pool: res.Pool, Team: res.Team}
	switch res.State {
	case routing.Unknown:
		var err error
		if r, err = s.mayCreate(c); err != nil {
			var bad *BadTargetError
			if m.doubt == noDoubt && !errors.As(err, &bad) { // it may exist: the index can be behind a create
				return routing.ErrExists
			}
			return err
		}
		c.outcome = outcomeClaimed
	case routing.NoPod:
		if err := s.mayActivate(c, res); err != nil {
			return err
		}
		r.MayClaim = true
		c.outcome = outcomeClaimed
	case routing.Starting, routing.MaybeFrozen: // following its activation wakes it
		if err := s.admit(c, accessFactsOf(&res)); err != nil {
			if m.doubt == noDoubt { // what it must show may be another: the index can be behind its pod
				return routing.ErrExists
			}
			return err
		}
		r.MayClaim = s.mayActivate(c, res) == nil
		if c.outcome != outcomeClaimed {
			c.outcome = outcomeParked
		}
	case routing.Paused:
		err := s.admit(c, accessFactsOf(&res))
		if err == nil {
			err = s.mayResumePaused(c, res)
		}
		if err != nil {
			if m.doubt == noDoubt { // it may be resumed: the index can be behind
				return routing.ErrExists
			}
			return err
		}
		if m.resumes++; m.resumes > maxResumes {
			return ErrTransitioning
		}
		r.Resume.UID = res.UID
		c.outcome = outcomeResumed
	default:
		return routing.ErrNotFound
	}
	return s.activate(ctx, c, m, r)
}

// activate parks the request until its sandbox may be resolved again.
func (s *Server) activate(ctx context.Context, c *call, m *missState, r routing.Request) error {
	if s.draining.Load() {
		return routing.ErrDraining
	}
	if !s.o.Lease.Held() {
		return errNoLease
	}
	if err := s.wait(c, m, r.Namespace); err != nil {
		return err
	}
	s.metrics.parked.Inc()
	defer s.metrics.parked.Dec()
	if m.unpark == nil {
		m.unpark = s.o.Activity.Park(r.ID)
	}
	if err := s.raiseMessageTimeout(c); err != nil {
		return err
	}
	start := time.Now()
	err := s.o.Activator.Activate(ctx, r)
	s.metrics.activated(c.outcome, err, start)
	m.doubt = indexBehind
	return err
}
