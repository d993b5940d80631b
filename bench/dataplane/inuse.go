package dataplane

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sandlane/sandlane/bench/load"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/gateway/inuse"
	"github.com/sandlane/sandlane/test/result"
)

// polls is how many polls make one sample: a single poll varies with the machine's other work.
const polls = 10

// inUse measures one poll of Envoy for open requests, when Envoy knows the target's
// addresses: the CPU of the gateway's poller, which runs in this process, and of Envoy. No
// request is open but the gateway's own poll, once a second.
func (w *world) inUse(ctx context.Context, t load.Target) error {
	count := len(t.Hosts)
	// Use each address now, since Envoy forgets addresses that were not used for a while.
	if err := w.knowAll(ctx, w.ours, t); err != nil {
		return err
	}
	p := inuse.NewEnvoyPoller(inuse.PollerOptions{
		Registry: inuse.NewRegistry(nil), Claims: []inuse.Claims{claimed(count)}, AdminSocket: filepath.Join(w.gateway.RunDir, envoy.AdminSocketName),
		Tick: time.Minute,
	})
	row := fmt.Sprintf("dataplane/in-use-%d/", count)
	for range max(w.Pairs, result.MinSamples) {
		before, err := w.ours.envoy.CPU()
		if err != nil {
			return err
		}
		start, mine := time.Now(), suite.OwnCPU()
		for range polls {
			if err := p.Refresh(ctx); err != nil {
				return err
			}
		}
		took, mine := time.Since(start), suite.OwnCPU()-mine
		after, err := w.ours.envoy.CPU()
		if err != nil {
			return err
		}
		millis := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / polls }
		w.Add(row+"sandlane/cpu", "ms", "less", millis(mine))
		w.Add(row+"envoy/cpu", "ms", "less", millis(after-before))
		w.Add(row+"both/time", "ms", "less", millis(took))
	}
	w.Progress("a poll of %d addresses: %.1f ms of CPU here, %.1f ms of Envoy's", count, w.Row(row+"sandlane/cpu").Summary().Median, w.Row(row+"envoy/cpu").Summary().Median)
	return nil
}

// claimed lists the claims of a fleet of that size, with their addresses.
type claimed int

func (c claimed) RangeClaims(f func(addr netip.Addr, namespace, id, claim string) bool) {
	for i := range int(c) {
		if !f(suite.Address(uint32(i)), "default", "b"+strconv.Itoa(i), "c") {
			return
		}
	}
}
