package restapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

// maxMetadata bounds the bytes of a sandbox's metadata: every gateway keeps them
// in memory.
const maxMetadata = 64 << 10

// maxEnvVar is what the kernel takes of one variable: name, "=", value and a zero byte (Linux,
// MAX_ARG_STRLEN). With a longer one no command would start.
const maxEnvVar = 128 << 10

// supported refuses fields that ask for what Sandlane does not do. A field that asks for
// what happens anyway is accepted: SDKs send many of their defaults.
func supported(n *api.NewSandbox) error {
	for _, f := range []struct {
		asked       bool
		field, what string
	}{
		{filled(n.VolumeMounts), "volumeMounts", "volumes are not supported"},
		{n.Mcp != nil && len(*n.Mcp) > 0, "mcp", "MCP servers are not supported"},
		{n.Iam != nil && n.Iam.Tokens != nil && len(*n.Iam.Tokens) > 0, "iam", "workload identities are not supported"},
	} {
		if f.asked {
			return unsupportedField(f.field, f.what)
		}
	}
	switch {
	case is(n.AutoPauseMemory, false) && autoResumes(n):
		return refuse(http.StatusBadRequest, "autoPauseMemory: without the memory no request resumes the sandbox; leave autoResume out")
	case autoResumes(n) && !is(n.AutoPause, true):
		return refuse(http.StatusBadRequest, "autoResume: needs autoPause")
	}
	if n.Network != nil {
		if err := supportedNetwork(*n.Network, "network."); err != nil {
			return err
		}
	}
	if isPrivate(n) && !*n.Secure {
		return refuse(http.StatusBadRequest,
			"You cannot create a sandbox without public access unless you enable secure envd access via 'secure' flag.")
	}
	return wellFormed(mapOf(n.Metadata), mapOf(n.EnvVars))
}

func autoResumes(n *api.NewSandbox) bool {
	return n.AutoResume != nil && is(n.AutoResume.Enabled, true)
}

// supportedNetwork refuses all rules but allowPublicTraffic and those that egressOf reads.
func supportedNetwork(n api.SandboxNetwork, prefix string) error {
	for _, f := range []struct {
		asked bool
		name  string
	}{
		{filled(n.DnsServers), "dnsServers"},
		{filled(n.HttpsPorts), "httpsPorts"},
		{n.MaskRequestHost != nil && *n.MaskRequestHost != "", "maskRequestHost"},
		{n.EgressProxy != nil, "egressProxy"},
	} {
		if f.asked {
			return unsupportedField(prefix+f.name, "this network rule is not supported")
		}
	}
	return nil
}

// wellFormed checks what the API server and an environment could not take.
func wellFormed(metadata, env map[string]string) error {
	size := 0
	for k, v := range metadata {
		size += len(k) + len(v)
	}
	if size > maxMetadata {
		return refuse(http.StatusBadRequest, fmt.Sprintf("metadata: must not have more than %d bytes", maxMetadata))
	}
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			return refuse(http.StatusBadRequest, "envVars: a name must not be empty or contain '=', and neither name nor value may contain a zero byte")
		}
		if len(k)+len("=")+len(v)+len("\x00") > maxEnvVar {
			return refuse(http.StatusBadRequest, fmt.Sprintf("envVars: name and value of a variable must not have more than %d bytes together", maxEnvVar-2))
		}
	}
	return nil
}

func is(flag *bool, value bool) bool { return flag != nil && *flag == value }

func filled[T any](list *[]T) bool { return list != nil && len(*list) > 0 }
