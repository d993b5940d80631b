package e2b

import (
	"net/http"

	"github.com/sandlane/sandlane/controlplane/e2b/api"
)

// UpdateSandboxNetwork is PUT /sandboxes/{sandboxID}/network. An update without
// rules clears them, and there are none: that much can be done.
func (s *Server) UpdateSandboxNetwork(w http.ResponseWriter, r *http.Request, _ string) {
	s.done(w, r, s.updateNetwork(r))
}

func (s *Server) updateNetwork(r *http.Request) error {
	var body api.SandboxNetworkUpdate
	if err := decode(r, &body); err != nil {
		return err
	}
	sandbox, _, err := s.find(r)
	if err != nil {
		return err
	}
	if is(body.AllowInternetAccess, false) {
		return refuse(http.StatusBadRequest, "allow_internet_access: false is not supported")
	}
	// What is so already needs no change.
	if body.AllowPublicTraffic != nil && *body.AllowPublicTraffic == sandbox.Private {
		return refuse(http.StatusBadRequest, "allowPublicTraffic: cannot be changed after the sandbox was created")
	}
	return supportedNetwork(api.SandboxNetwork{
		AllowOut: body.AllowOut, DenyOut: body.DenyOut, DnsServers: body.DnsServers, EgressProxy: body.EgressProxy,
		HttpsPorts: body.HttpsPorts, MaskRequestHost: body.MaskRequestHost, Rules: body.Rules,
	}, "")
}
