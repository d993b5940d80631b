package socket

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/extproc"
	"github.com/sandlane/sandlane/gateway/inuse"
	"github.com/sandlane/sandlane/gateway/limits"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// Options of a server.
type Options struct {
	Socket string
	Routes int
}

// Serve runs the ExtProc server until ctx ends. For each line that it reads from in it
// writes the number of its allocations so far to out.
func Serve(ctx context.Context, o Options, in io.Reader, out io.Writer) error {
	cache, usage := routecache.New(2*o.Routes+1024), inuse.NewRegistry(nil)
	for i := range o.Routes {
		id, claim := "b"+strconv.Itoa(i), fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		r := &routecache.Route{
			SandboxID: id, Pool: routecache.PoolOf(suite.Namespace, "echo"), ClaimID: claim, PodUID: claim,
			Addr: suite.Address(uint32(i)), PodRV: 1, Use: usage.ClaimUse(id, claim),
		}
		if !cache.Put(cache.Begin(id), r) {
			return errors.New("the route cache refuses a route")
		}
	}
	behind := nothing{}
	room := limits.NewOpenRequests(limits.OpenOptions{Limits: limits.NewReader(limits.Options{MaxStreams: math.MaxInt32}), Room: math.MaxInt32})
	s, err := extproc.NewServer(extproc.Options{
		Socket: o.Socket, Cache: cache, Resolver: behind, Activator: behind, Keys: behind, Pools: behind,
		Tokens: behind, Lease: behind, Holds: behind, Activity: recorder{usage}, Room: roomOf{behind, room}, Now: usage.Now, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	go func() {
		for lines := bufio.NewScanner(in); lines.Scan(); {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			fmt.Fprintln(out, m.Mallocs)
		}
	}()
	return s.Start(ctx)
}

// nothing implements the parts of the server that a hit never calls.
type nothing struct{}

func (nothing) Lookup(string) routing.Answer { return routing.Answer{} }

func (nothing) Resolve(context.Context, string, string) (routing.Answer, error) {
	return routing.Answer{}, nil
}

func (nothing) Activate(context.Context, routing.Request) error {
	return routing.ErrNotFound
}

func (nothing) Verify(context.Context, string) (routing.KeyOwner, error) {
	return routing.KeyOwner{}, routing.ErrBadKey
}

func (nothing) Wait(string, string, bool) (func(), error) { return nil, routing.ErrParkingFull }

func (nothing) Await(context.Context, string, string) error { return routing.ErrNotFound }

func (nothing) PoolAccess(string, string) (v1alpha1.FirstRequestAccess, bool) { return "", false }
func (nothing) Reach(string, string) v1alpha1.FirstRequestReach               { return v1alpha1.ReachPublic }
func (nothing) EnvAccess(string, string) (v1alpha1.FirstRequestAccess, bool)  { return "", false }
func (nothing) Member(string, string, string) bool                            { return false }
func (nothing) MayMakeOf(string, string, string) bool                         { return false }
func (nothing) ReachOfEnv(string, string, string) v1alpha1.FirstRequestReach  { return "" }
func (nothing) MayMake(string, string, string) bool                           { return false }
func (nothing) ValidEnvd(string, types.UID, string) bool                      { return false }
func (nothing) ValidPortCookie(string, types.UID, uint16, string) bool        { return false }
func (nothing) ValidTraffic(string, types.UID, string) bool                   { return false }
func (nothing) Held() bool                                                    { return true }

// roomOf counts open requests as a gateway does, while Envoy is not looked at.
type roomOf struct {
	nothing
	*limits.OpenRequests
}

type recorder struct{ *inuse.Registry }

func (recorder) StreamEnded(string, string, time.Time) {}
