package restapi

import (
	"net/http"

	"github.com/sandlane/sandlane/gateway/restapi/api"
	"github.com/sandlane/sandlane/gateway/restapi/sandboxid"
)

// UpdateSandboxNetwork is PUT /sandboxes/{sandboxID}/network: the rules become
// those of the body; what it leaves out is cleared.
func (s *Server) UpdateSandboxNetwork(w http.ResponseWriter, r *http.Request, _ string) {
	s.done(w, r, s.updateNetwork(r))
}

func (s *Server) updateNetwork(r *http.Request) error {
	var body api.SandboxNetworkUpdate
	if err := decode(r, &body); err != nil {
		return err
	}
	rules := api.SandboxNetwork{
		AllowOut: body.AllowOut, DenyOut: body.DenyOut, DnsServers: body.DnsServers, EgressProxy: body.EgressProxy,
		HttpsPorts: body.HttpsPorts, MaskRequestHost: body.MaskRequestHost, Rules: body.Rules,
	}
	if err := supportedNetwork(rules, ""); err != nil {
		return err
	}
	egress, err := egressOf(body.AllowInternetAccess, rules, "")
	if err != nil {
		return err
	}
	sandbox, template, err := s.find(r)
	if err != nil {
		return err
	}
	if err := egress.suits(template, ""); err != nil {
		return err
	}
	// A value that the sandbox has already needs no change.
	if body.AllowPublicTraffic != nil && *body.AllowPublicTraffic == sandbox.Private {
		return refuse(http.StatusBadRequest, "allowPublicTraffic: cannot be changed after the sandbox was created")
	}
	// An ID that was not generated may be used again, by a sandbox that would get these
	// rules.
	if egress.Restricted() && !sandboxid.Generated(sandbox.ID) {
		return refuse(http.StatusBadRequest, "denyOut, allow_internet_access: a sandbox that a first request made can have no network rules")
	}
	return s.o.Sandboxes.SetEgress(r.Context(), sandbox.Namespace, sandbox.ID, egress)
}
