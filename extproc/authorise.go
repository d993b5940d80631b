package extproc

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// place is what authorisation looks at of a sandbox that exists.
type place struct {
	namespace, pool  string
	private, guarded bool
	tokenUID         *types.UID
}

func placeOf(r *Resolution) place {
	return place{r.Namespace, r.Pool, r.Private, r.Guarded, &r.UID}
}

// admit says whether the request may reach an existing sandbox: it names no pool
// and no key of another namespace (the sandbox is then not found), carries the
// traffic token where one is needed, and shows what the sandbox's pool asks for
// where the sandbox was made by name. On its own port sandboxd asks itself.
func (s *Server) admit(c *call, at place) error {
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
			return ErrNotFound
		}
	}
	keyed := false
	if h.APIKey.Count > 0 {
		identity, err := s.verify(c)
		if err != nil && !errors.Is(err, ErrBadKey) { // a bad key only matters where one is needed
			return err
		}
		if err == nil && identity.Namespace != at.namespace {
			return ErrNotFound
		}
		keyed = err == nil
	}
	if at.guarded && c.target.Port == sandboxdPort {
		return nil
	}
	if at.private && !s.hasToken(c, at.tokenUID) {
		return rejectTraffic(h.TrafficToken)
	}
	if keyed || isGenerated(c.target.ID) {
		return nil
	}
	switch s.o.Pools.Reach(at.namespace, at.pool) {
	case v1alpha1.ReachPublic:
		return nil
	case v1alpha1.ReachToken:
		if !s.hasToken(c, at.tokenUID) {
			return rejectTraffic(h.TrafficToken)
		}
		return nil
	default:
		return ErrBadKey
	}
}

// hasToken reports whether the request carries the traffic token of the sandbox with
// that UID; nobody has one if it is nil.
func (s *Server) hasToken(c *call, uid *types.UID) bool {
	token := &c.headers.TrafficToken
	return uid != nil && token.Count == 1 && s.o.Tokens.ValidTraffic(c.target.ID, *uid, token.Value)
}

// mayWake says whether a request that may reach a paused sandbox may also resume it: on
// sandboxd's own port, where otherwise sandboxd asks, it must show the token that it asks
// for. Nothing is written before.
func (s *Server) mayWake(c *call, res Resolution) error {
	if !res.Guarded || c.target.Port != sandboxdPort {
		return nil
	}
	token := &c.headers.EnvdToken
	if token.Count == 1 && s.o.Tokens.ValidEnvd(c.target.ID, res.UID, token.Value) {
		return nil
	}
	return &rejection{reason: reasonEnvdToken, status: http.StatusForbidden, message: messageResumeDenied}
}

// mayResume says whether the request may activate a sandbox that exists and has
// no pod: what its pool asks for.
func (s *Server) mayResume(c *call, res Resolution) error {
	if err := s.admit(c, placeOf(&res)); err != nil {
		return err
	}
	access, ok := s.o.Pools.Pool(res.Namespace, res.Pool)
	if !ok {
		return ErrPoolNotFound
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

// mayCreate says whether the request may make a sandbox that nobody has heard
// of, and from which pool.
func (s *Server) mayCreate(c *call) (ActivationRequest, error) {
	var none ActivationRequest
	if isGenerated(c.target.ID) { // such IDs are ours alone
		return none, ErrNotFound
	}
	pool, err := s.wantedPool(c)
	if err != nil {
		return none, err
	}
	access, ok := s.o.Pools.Pool(pool.Namespace, pool.Name)
	identity, keyErr := s.verify(c)
	if keyErr == nil && identity.Namespace != pool.Namespace { // it could not see what it made
		return none, forbidsFirstRequest(pool)
	}
	if keyErr != nil && access != v1alpha1.AccessPublic {
		return none, keyErr // the same whether there is such a pool or not
	}
	if !ok {
		return none, &rejection{reason: reasonPoolNotFound, status: http.StatusNotFound, message: fmt.Sprintf("Pool %s was not found", pool)}
	}
	if !s.o.Pools.MayMake(pool.Namespace, pool.Name, c.target.ID) {
		return none, &rejection{reason: reasonForbidden, status: http.StatusForbidden, message: "The sandbox ID is reserved for another pool"}
	}
	r := ActivationRequest{ID: c.target.ID, Namespace: pool.Namespace, Pool: pool.Name, New: true}
	switch access {
	case v1alpha1.AccessPublic:
		return r, nil
	case v1alpha1.AccessAPIKey:
		r.Team = identity.Team
		return r, nil
	default:
		return none, forbidsFirstRequest(pool)
	}
}

func forbidsFirstRequest(pool types.NamespacedName) error {
	return &rejection{
		reason: reasonForbidden, status: http.StatusForbidden,
		message: fmt.Sprintf("Pool %s does not let this request make a sandbox", pool),
	}
}

// wantedPool is the pool that a new sandbox is to come from: the one that the
// request names, else the gateway's default. A name without a namespace means
// the key's namespace, then the default pool's, then Kubernetes' default.
func (s *Server) wantedPool(c *call) (types.NamespacedName, error) {
	h, fallback := &c.headers, s.o.FirstRequestPool
	byHost := c.target.Form == FormHost
	switch {
	case !byHost && h.Env.Count > 0: // there is no SandboxEnv yet
		return fallback, errEnvRefused
	case byHost || h.Pool.Count == 0:
		if fallback == (types.NamespacedName{}) {
			return fallback, ErrNotFound
		}
		return fallback, nil
	}
	pool, err := parsePool(h.Pool)
	if err != nil || pool.Namespace != "" {
		return pool, err
	}
	pool.Namespace = "default"
	if fallback.Namespace != "" {
		pool.Namespace = fallback.Namespace
	}
	if h.APIKey.Count > 0 {
		identity, err := s.verify(c)
		if err != nil {
			return pool, err
		}
		pool.Namespace = identity.Namespace
	}
	return pool, nil
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

// verify returns whom the request's API key belongs to, ErrBadKey if there is
// none or it is not valid.
func (s *Server) verify(c *call) (KeyOwner, error) {
	switch c.headers.APIKey.Count {
	case 0:
		return KeyOwner{}, ErrBadKey
	case 1:
		return s.o.Keys.Verify(c.stream.Context(), c.headers.APIKey.Value)
	default:
		return KeyOwner{}, errDuplicate
	}
}
