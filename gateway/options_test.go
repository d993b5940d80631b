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
		"negative wait":        {func(o *Options) { o.MaxWait = -1 }, "negative"},
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
