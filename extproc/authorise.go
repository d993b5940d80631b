package extproc

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routing"
)

// accessFacts has the fields of an existing sandbox by which requests for it are authorised.
type accessFacts struct {
	// env is empty if the sandbox has none, and always if the route came from the cache.
	namespace, env, pool string
	private, guarded     bool
	tokenUID             *types.UID
}

func accessFactsOf(r *routing.Answer) accessFacts {
	return accessFacts{r.Namespace, r.Env, r.Pool, r.Private, r.Guarded, &r.UID}
}

// admit says whether the request may reach an existing sandbox: it names no pool
// and no key of another namespace (the sandbox is then not found), carries the
// traffic token where one is needed, and shows what the sandbox's pool asks for
// where the sandbox was made by name. The cookie of the port stands for both. On sandboxd's
// port sandboxd checks its own token.
func (s *Server) admit(c *call, at accessFacts) error {
	h := &c.headers
	for _, named := range []struct {
		header Field
		bad    error
	}{{h.Pool, errPoolName}, {h.Env, errEnvName}} {
		if named.header.Count == 0 || c.target.Form == FormHost {
			continue
		}
		where, err := parsePool(named.header)
		if err != nil {
			return named.bad
		}
		if where.Namespace != "" && where.Namespace != at.namespace {
			return routing.ErrNotFound
		}
	}
	keyed := false
	if h.APIKey.Count > 0 {
		owner, err := s.verify(c)
		if err != nil && !errors.Is(err, routing.ErrBadKey) { // a bad key only matters where one is needed
			return err
		}
		if err == nil && owner.Namespace != at.namespace {
			return routing.ErrNotFound
		}
		keyed = err == nil
	}
	if at.guarded && c.target.Port == sandboxdPort {
		return nil
	}
	if s.hasPortCookie(c, at.tokenUID) {
		return nil
	}
	if at.private && !s.hasToken(c, at.tokenUID) {
		return rejectTraffic(h.TrafficToken)
	}
	if keyed || isGenerated(c.target.ID) {
		return nil
	}
	switch s.reach(at) {
	case v1alpha1.ReachPublic:
		return nil
	case v1alpha1.ReachToken:
		if !s.hasToken(c, at.tokenUID) {
			return rejectTraffic(h.TrafficToken)
		}
		return nil
	default:
		return routing.ErrBadKey
	}
}

// reach says what requests for a sandbox that was made by name must show.
func (s *Server) reach(at accessFacts) v1alpha1.FirstRequestReach {
	if at.env != "" {
		return s.o.Pools.ReachOfEnv(at.namespace, at.env, at.pool)
	}
	return s.o.Pools.Reach(at.namespace, at.pool)
}

// hasToken reports whether the request carries the traffic token of the sandbox with
// that UID; no request does if it is nil.
func (s *Server) hasToken(c *call, uid *types.UID) bool {
	token := &c.headers.TrafficToken
	return uid != nil && token.Count == 1 && s.o.Tokens.ValidTraffic(c.target.ID, *uid, token.Value)
}

// mayResumePaused says whether a request that may reach a paused sandbox may also resume
// it: the sandbox must be one that requests resume (any other is not found), and on
// sandboxd's port, whose token otherwise sandboxd itself checks, the request must show
// that token. Call it before the resume is written.
func (s *Server) mayResumePaused(c *call, res routing.Answer) error {
	if !res.Resumes {
		return routing.ErrNotFound
	}
	if !res.Guarded || c.target.Port != sandboxdPort {
		return nil
	}
	token := &c.headers.EnvdToken
	if token.Count == 1 && s.o.Tokens.ValidEnvd(c.target.ID, res.UID, token.Value) {
		return nil
	}
	return &rejection{reason: reasonEnvdToken, status: http.StatusForbidden, message: messageResumeDenied}
}

// mayActivate says whether the request may activate a sandbox that exists and has no
// pod: it must show what the pool asks for.
func (s *Server) mayActivate(c *call, res routing.Answer) error {
	if err := s.admit(c, accessFactsOf(&res)); err != nil {
		return err
	}
	access, ok := s.access(origin{NamespacedName: types.NamespacedName{Namespace: res.Namespace, Name: cmp.Or(res.Env, res.Pool)}, env: res.Env != ""})
	if !ok {
		return routing.ErrPoolNotFound
	}
	switch access {
	case v1alpha1.AccessPublic:
		return nil
	case v1alpha1.AccessAPIKey:
		_, err := s.verify(c) // admit has compared the namespace
		return err
	default:
		return ErrForbidden
	}
}

// mayCreate says whether the request may make a sandbox of an ID that has none, and
// from which pool.
func (s *Server) mayCreate(c *call) (routing.Request, error) {
	var none routing.Request
	if isGenerated(c.target.ID) { // such IDs are ours alone
		return none, routing.ErrNotFound
	}
	from, err := s.wanted(c)
	if err != nil {
		return none, err
	}
	access, ok := s.access(from)
	owner, keyErr := s.verify(c)
	if keyErr == nil && owner.Namespace != from.Namespace { // it could not see what it made
		return none, forbidsFirstRequest(from)
	}
	if !ok && keyErr != nil && !from.env && from.NamespacedName == s.o.FirstRequestPool { // no secret: such requests need not name it
		return none, &rejection{reason: reasonPoolNotFound, status: http.StatusNotFound, message: "The gateway's pool for first requests was not found. Make it, or name another in the header X-Sandbox-Pool."}
	}
	if keyErr != nil && access != v1alpha1.AccessPublic {
		return none, keyErr // the same whether there is such a pool or not
	}
	if !ok {
		return none, &rejection{reason: reasonPoolNotFound, status: http.StatusNotFound, message: fmt.Sprintf("%s was not found", from)}
	}
	if from.member != "" && !s.o.Pools.Member(from.Namespace, from.Name, from.member) {
		return none, errEnvAndPool
	}
	r := routing.Request{ID: c.target.ID, Namespace: from.Namespace, Pool: from.Name, New: true}
	mayMake := s.o.Pools.MayMake
	if from.env {
		r.Env, r.Pool, mayMake = from.Name, "", s.o.Pools.MayMakeOf
	}
	if !mayMake(from.Namespace, from.Name, c.target.ID) {
		return none, &rejection{reason: reasonForbidden, status: http.StatusForbidden, message: "The sandbox ID is reserved for another pool"}
	}
	switch access {
	case v1alpha1.AccessPublic:
		return r, nil
	case v1alpha1.AccessAPIKey:
		r.Team = owner.Team
		return r, nil
	default:
		return none, forbidsFirstRequest(from)
	}
}

// origin is the pool or the env that a sandbox comes from.
type origin struct {
	types.NamespacedName
	env bool
	// member is a pool that must be one of the env's; empty for none.
	member string
}

// String names it for clients.
func (o origin) String() string {
	if o.env {
		return "Env " + o.NamespacedName.String()
	}
	return "Pool " + o.NamespacedName.String()
}

// access says what a first request must show to claim from the pool or env; false if it
// does not exist.
func (s *Server) access(o origin) (v1alpha1.FirstRequestAccess, bool) {
	if o.env {
		return s.o.Pools.EnvAccess(o.Namespace, o.Name)
	}
	return s.o.Pools.PoolAccess(o.Namespace, o.Name)
}

func forbidsFirstRequest(from origin) error {
	return &rejection{
		reason: reasonForbidden, status: http.StatusForbidden,
		message: fmt.Sprintf("%s does not let this request make a sandbox", from),
	}
}

// wanted returns what a new sandbox is to come from: the env that the request names, else
// the pool that it names, else the gateway's default. If it names both, the pool must be a
// member of the env, but any member may give the pod. Only a request that may make a
// sandbox of the env learns whether the pool is a member.
func (s *Server) wanted(c *call) (origin, error) {
	h := &c.headers
	if c.target.Form == FormHost || h.Env.Count == 0 && h.Pool.Count == 0 {
		if s.o.FirstRequestPool == (types.NamespacedName{}) {
			return origin{}, routing.ErrNotFound
		}
		return origin{NamespacedName: s.o.FirstRequestPool}, nil
	}
	var env, pool types.NamespacedName
	var err error
	if h.Pool.Count > 0 {
		if pool, err = s.named(c, h.Pool, errPoolName); err != nil || h.Env.Count == 0 {
			return origin{NamespacedName: pool}, err
		}
	}
	if env, err = s.named(c, h.Env, errEnvName); err != nil {
		return origin{}, err
	}
	if h.Pool.Count > 0 && pool.Namespace != env.Namespace {
		return origin{}, errEnvAndPool
	}
	return origin{env, true, pool.Name}, nil
}

// named returns the pool or env that a header names. A name without a namespace means the key's namespace,
// then the default pool's, then Kubernetes' default.
func (s *Server) named(c *call, f Field, bad error) (types.NamespacedName, error) {
	name, err := parsePool(f)
	if errors.Is(err, errPoolName) {
		err = bad
	}
	if err != nil || name.Namespace != "" {
		return name, err
	}
	name.Namespace = cmp.Or(s.o.FirstRequestPool.Namespace, "default")
	if c.headers.APIKey.Count > 0 {
		owner, err := s.verify(c)
		if err != nil {
			return name, err
		}
		name.Namespace = owner.Namespace
	}
	return name, nil
}

// parsePool reads [namespace/]name.
func parsePool(f Field) (types.NamespacedName, error) {
	if f.Count > 1 {
		return types.NamespacedName{}, errDuplicate
	}
	namespace, name, found := strings.Cut(f.Value, "/")
	if !found {
		namespace, name = "", f.Value
	}
	if found && !validDNSLabel(namespace) || !validDNSLabel(name) {
		return types.NamespacedName{}, errPoolName
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// verify returns the owner of the request's API key, routing.ErrBadKey if there is
// none or it is not valid.
func (s *Server) verify(c *call) (routing.KeyOwner, error) {
	switch c.headers.APIKey.Count {
	case 0:
		return routing.KeyOwner{}, routing.ErrBadKey
	case 1:
		return s.o.Keys.Verify(c.stream.Context(), c.headers.APIKey.Value)
	default:
		return routing.KeyOwner{}, errDuplicate
	}
}
