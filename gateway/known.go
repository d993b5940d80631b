package gateway

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/routing"
)

// known returns what the index knows of a running sandbox, for package activation.
func (g *gateway) known(id string) *activation.Known {
	a := g.own.Correct(g.index.Resolve(id))
	if a.State != routing.Running {
		return nil
	}
	claimed := sandboxdclient.Claimed{
		ID: id, UID: a.UID, Template: cmp.Or(a.Env, a.Pool), Unsecured: a.Unsecured,
		ClaimID: a.ClaimID, PodName: a.PodName, PodUID: types.UID(a.PodUID), Addr: a.Route.Addr, Sandboxd: a.Sandboxd, InitKey: a.InitKey,
	}
	return &activation.Known{
		Namespace: a.Namespace, Env: a.Env, Pool: a.Pool, Team: a.Team, Route: a.Route,
		Ready: func(ctx context.Context) error { return g.readiness.InitOnce(ctx, claimed) },
	}
}
