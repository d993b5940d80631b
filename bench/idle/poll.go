package idle

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/controlplane/controlplanepb"
	"github.com/sandlane/sandlane/gateway/inuse"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/result"
)

// poll measures a gateway's answer to the controller's poll, which asks for the sandboxes
// that were used since the last poll, when one of a hundred was used: from the request to the
// encoded answer, without the socket.
func poll(ctx context.Context, e *suite.Env) error {
	before := heap()
	r := inuse.NewRegistry(nil)
	all := make([]*routecache.ClaimUse, e.Objects)
	for i := range all {
		all[i] = r.ClaimUse(sandboxID(i), claim(i))
		all[i].Touch(r.Now())
	}
	e.Add(fmt.Sprintf("idle/registry-%d/sandlane/memory", e.Objects), "bytes a claim", "less", (heap()-before)/float64(e.Objects))
	l, err := net.Listen("unix", filepath.Join(e.Dir, "poll.sock"))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer l.Close()
	s, err := controlplane.NewServer(controlplane.ServerOptions{
		Listener: l, Activity: r, Member: member{}, Fencer: struct{ controlplane.Fencer }{}, Releaser: struct{ controlplane.Releaser }{},
		Demand: struct{ controlplane.DemandSource }{}, PauseEnforcer: struct{ controlplane.PauseEnforcer }{},
	})
	if err != nil {
		return err
	}
	first := r.LastActive(0)
	ask := &controlplanepb.LastActiveRequest{Cursor: first.Cursor, Source: first.Source}
	row := fmt.Sprintf("idle/poll-%d/sandlane/cpu", e.Objects)
	moved := (len(all) + 99) / 100
	for range max(e.Pairs, result.MinSamples) {
		for i := 0; i < len(all); i += 100 {
			all[i].Touch(r.Now())
		}
		start := suite.OwnCPU()
		answer, err := s.LastActive(ctx, ask)
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		if _, err := proto.Marshal(answer); err != nil {
			return fmt.Errorf("encode a poll: %w", err)
		}
		took := suite.OwnCPU() - start
		if len(answer.GetActivities()) != moved {
			return fmt.Errorf("a poll reports %d of %d sandboxes that were used", len(answer.GetActivities()), moved)
		}
		ask.Cursor = answer.GetCursor()
		e.Add(row, "ms", "less", float64(took.Microseconds())/1000)
	}
	e.Progress("a poll of %d: %.1f ms of CPU", e.Objects, e.Row(row).Summary().Median)
	return nil
}

// member is a gateway's lease, which this benchmark does not use.
type member struct{}

func (member) Holder() string { return "bench" }
func (member) Reached()       {}
