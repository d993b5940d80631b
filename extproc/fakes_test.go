package extproc

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routing"
)

// fakePools are first-request rules by namespace/name; without rules a pool is closed.
type fakePools map[string]*v1alpha1.FirstRequest

func (p fakePools) PoolAccess(ns, name string) (v1alpha1.FirstRequestAccess, bool) {
	f, ok := p[ns+"/"+name]
	if f == nil {
		return "", ok
	}
	return f.Access, ok
}

// Envs of the fakes are pools whose names begin with "env-"; their one member is the
// pool without that.
func (p fakePools) EnvAccess(ns, name string) (v1alpha1.FirstRequestAccess, bool) {
	if !strings.HasPrefix(name, "env-") {
		return "", false
	}
	return p.PoolAccess(ns, strings.TrimPrefix(name, "env-"))
}

func (p fakePools) Member(ns, env, pool string) bool {
	_, ok := p.EnvAccess(ns, env)
	return ok && env == "env-"+pool
}

func (p fakePools) MayMakeOf(ns, env, id string) bool {
	return p.MayMake(ns, strings.TrimPrefix(env, "env-"), id)
}

func (p fakePools) Reach(ns, name string) v1alpha1.FirstRequestReach {
	return v1alpha1.ReachOf(&v1alpha1.SandboxPoolSpec{FirstRequest: p[ns+"/"+name]})
}

func (p fakePools) ReachOfEnv(ns, env, pool string) v1alpha1.FirstRequestReach {
	if _, ok := p[ns+"/"+pool]; ok {
		return p.Reach(ns, pool)
	}
	return p.Reach(ns, strings.TrimPrefix(env, "env-"))
}

func (p fakePools) MayMake(ns, name, id string) bool {
	for key, f := range p {
		if f != nil && f.IDPrefix != "" && strings.HasPrefix(id, f.IDPrefix) {
			return key == ns+"/"+name
		}
	}
	return true
}

type fakeKeys struct{}

func (fakeKeys) Verify(_ context.Context, key string) (routing.KeyOwner, error) {
	switch key {
	case "key-team":
		return routing.KeyOwner{Team: "red", Namespace: "team"}, nil
	case "key-other":
		return routing.KeyOwner{Team: "blue", Namespace: "other"}, nil
	}
	return routing.KeyOwner{}, routing.ErrBadKey
}

type fakeTokens struct{}

func (fakeTokens) ValidEnvd(id string, uid types.UID, token string) bool {
	return token == "envd-"+id+"-"+string(uid)
}

func (fakeTokens) ValidPortCookie(id string, uid types.UID, port uint16, cookie string) bool {
	return cookie == "cookie-"+id+"-"+string(uid)+"-"+strconv.Itoa(int(port))
}

func (fakeTokens) ValidTraffic(id string, uid types.UID, token string) bool {
	return token == "token-"+id+"-"+string(uid)
}

// fakeHolds answers as told, after doing what it is told.
type fakeHolds struct {
	waited atomic.Int32
	await  func(ctx context.Context, id, claim string) error
}

func (f *fakeHolds) Await(ctx context.Context, id, claim string) error {
	f.waited.Add(1)
	if f.await == nil {
		return nil
	}
	return f.await(ctx, id, claim)
}
