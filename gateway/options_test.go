package gateway

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/extproc"
)

func TestOptionsValidate(t *testing.T) {
	longest := envoy.DefaultMaxMessageTimeout - extproc.WaitMargin
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string // a part of the error; empty for none
	}{
		"what is required":     {func(*Options) {}, ""},
		"no API server":        {func(o *Options) { o.Config = nil }, "no API server"},
		"no name":              {func(o *Options) { o.Name = "" }, "gateway name"},
		"no run directory":     {func(o *Options) { o.RunDir = "" }, "no run directory"},
		"negative wait":        {func(o *Options) { o.MaxWait = -1 }, "max wait -1ns: must not be negative"},
		"negative lease":       {func(o *Options) { o.LeaseDuration = -time.Second }, "lease duration -1s"},
		"negative renewals":    {func(o *Options) { o.RenewEvery = -1 }, "time between renewals -1ns"},
		"negative tick":        {func(o *Options) { o.IdleTick = -1 }, "idle tick -1ns"},
		"negative delay":       {func(o *Options) { o.DrainDelay = -1 }, "drain delay -1ns"},
		"negative grace":       {func(o *Options) { o.DrainGrace = -1 }, "drain grace -1ns"},
		"negative cache":       {func(o *Options) { o.CacheSize = -1 }, "cache size -1"},
		"negative requests":    {func(o *Options) { o.MaxOpen = -1 }, "max open requests -1"},
		"negative bytes":       {func(o *Options) { o.MaxCheckpointBytes = -1 }, "max bytes of a checkpoint -1"},
		"negative snapshots":   {func(o *Options) { o.MaxSnapshots = -1 }, "max snapshots -1"},
		"negative of a key":    {func(o *Options) { o.MaxSnapshotsPerKey = -1 }, "max snapshots of a key -1"},
		"longest wait":         {func(o *Options) { o.MaxWait = longest }, ""},
		"more than Envoy's":    {func(o *Options) { o.MaxWait = longest + 1 }, "must be at most 4m55s"},
		"a wait without bound": {func(o *Options) { o.MaxWait = time.Duration(1<<63 - 1) }, "must be at most 4m55s"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Config: &rest.Config{}, Name: "g", RunDir: "/run/sandlane"}
			tc.change(&o)
			o.Complete()
			err := o.Validate()
			if tc.want == "" && err != nil {
				t.Fatalf("Validate: %v", err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("Validate: %v, want %q", err, tc.want)
			}
		})
	}
}
