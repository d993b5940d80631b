package restapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

const (
	// clientID is what E2B answers for every sandbox.
	clientID = "6532622b"
	// envdVersion is the envd whose protocol sandboxd speaks; SDKs choose by it
	// what they may ask for.
	envdVersion = "0.6.13"
)

// never stands for the end of a sandbox that has none: the field is required.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// sandboxView is what create and connect answer.
func (s *Server) sandboxView(sandbox Sandbox, template Template) api.Sandbox {
	envd, traffic := s.tokensOf(sandbox)
	return api.Sandbox{
		TemplateID: templateIDOf(sandbox, template), Alias: aliasOf(template),
		SandboxID: sandbox.ID, ClientID: clientID, EnvdVersion: envdVersion,
		EnvdAccessToken: envd, TrafficAccessToken: traffic, Domain: &s.o.Domain,
	}
}

// detailView is what get answers.
func (s *Server) detailView(sandbox Sandbox, template Template, asked AskedEgress) api.SandboxDetail {
	envd, traffic := s.tokensOf(sandbox)
	l := listedView(sandbox, template)
	d := api.SandboxDetail{
		TemplateID: l.TemplateID, Alias: l.Alias, SandboxID: l.SandboxID, ClientID: l.ClientID, EnvdVersion: l.EnvdVersion,
		StartedAt: l.StartedAt, EndAt: l.EndAt, CpuCount: l.CpuCount, MemoryMB: l.MemoryMB, DiskSizeMB: l.DiskSizeMB,
		State: l.State, PauseMode: pauseModeOf(sandbox), Metadata: l.Metadata, VolumeMounts: l.VolumeMounts,
		EnvdAccessToken: envd, TrafficAccessToken: traffic, Domain: &s.o.Domain,
	}
	d.AllowInternetAccess, d.Network.AllowOut, d.Network.DenyOut = asked.Internet, asked.AllowOut, asked.DenyOut
	d.Network.AllowPublicTraffic = !sandbox.Private && !sandbox.Keyed
	d.Network.Rules = rulesView(sandbox.Rules)
	d.Lifecycle.OnTimeout, d.Lifecycle.AutoResume = "kill", sandbox.AutoResume
	if sandbox.AutoPause {
		d.Lifecycle.OnTimeout = "pause"
	}
	return d
}

// listedView is what lists have of a sandbox: no token.
func listedView(sandbox Sandbox, template Template) api.ListedSandbox {
	l := api.ListedSandbox{
		TemplateID: templateIDOf(sandbox, template), Alias: aliasOf(template),
		SandboxID: sandbox.ID, ClientID: clientID, EnvdVersion: envdVersion,
		StartedAt: sandbox.StartedAt.UTC(), EndAt: sandbox.EndAt.UTC(),
		CpuCount: sandbox.CPUCount, MemoryMB: sandbox.MemoryMB, DiskSizeMB: sandbox.DiskMB,
		State: stateOf(sandbox), Metadata: sandbox.Metadata, VolumeMounts: []map[string]any{},
	}
	if sandbox.EndAt.IsZero() {
		l.EndAt = never
	}
	if l.Metadata == nil {
		l.Metadata = map[string]string{}
	}
	return l
}

// pauseModeOf returns what is kept of a paused sandbox, as E2B calls it; nil of one that
// runs, or whose files are being saved.
func pauseModeOf(sandbox Sandbox) *api.PauseMode {
	switch {
	case !sandbox.Paused:
		return nil
	case sandbox.Frozen:
		return new(api.Full)
	case sandbox.Saved:
		return new(api.Filesystem)
	}
	return nil
}

func stateOf(sandbox Sandbox) api.SandboxState {
	if sandbox.Paused {
		return api.Paused
	}
	return api.Running
}

// tokensOf returns the tokens that a sandbox asks for; nil where it asks for none.
func (s *Server) tokensOf(sandbox Sandbox) (envd, traffic *string) {
	if sandbox.Secure {
		envd = new(s.o.Tokens.Envd(sandbox.ID, sandbox.UID))
	}
	if sandbox.Private {
		traffic = new(s.o.Tokens.Traffic(sandbox.ID, sandbox.UID))
	}
	return envd, traffic
}

// templateIDOf is what a sandbox was made from: a snapshot is a template of its own.
func templateIDOf(sandbox Sandbox, template Template) string {
	if sandbox.Snapshot != "" {
		return sandbox.Snapshot
	}
	return template.ID
}

// aliasOf is the name that people know a template by.
func aliasOf(t Template) string {
	if len(t.Aliases) > 0 {
		return t.Aliases[0]
	}
	return t.ID
}

// encode returns a value of ours, or one that came out of a decoder, as JSON.
func encode(v any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(fmt.Errorf("encode an answer: %w", err))
	}
	return b.Bytes()
}
