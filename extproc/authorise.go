package extproc

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// admit says whether the request may reach an existing sandbox of that
// namespace: it names no pool and no key of another one (the sandbox is then
// not found), and carries the traffic token if the sandbox is private, for which
// privateUID is its UID and not nil.
func (s *Server) admit(c *call, namespace string, privateUID *types.UID) error {
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
		if where.Namespace != "" && where.Namespace != namespace {
			return ErrNotFound
		}
	}
	if h.APIKey.Count > 0 {
		identity, err := s.verify(c)
		if err != nil && !errors.Is(err, ErrBadKey) { // a bad key only matters where one is needed
			return err
		}
		if err == nil && identity.Namespace != namespace {
			return ErrNotFound
		}
	}
	if privateUID != nil && c.target.Port != sandboxdPort &&
		(h.TrafficToken.Count != 1 || !s.o.Tokens.ValidTraffic(c.target.ID, *privateUID, h.TrafficToken.Value)) {
		return rejectTraffic(h.TrafficToken)
	}
	return nil
}

// mayResume says whether the request may activate a sandbox that exists and has
// no pod: what its pool asks for.
func (s *Server) mayResume(c *call, res Resolution) error {
	if err := s.admit(c, res.Namespace, res.PrivateUID); err != nil {
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
	if !ok {
		return none, &rejection{reason: reasonPoolNotFound, status: http.StatusNotFound, message: fmt.Sprintf("Pool %s was not found", pool)}
	}
	identity, keyErr := s.verify(c)
	if keyErr == nil && identity.Namespace != pool.Namespace { // it could not see what it made
		return none, forbidsFirstRequest(pool)
	}
	r := ActivationRequest{ID: c.target.ID, Namespace: pool.Namespace, Pool: pool.Name, New: true}
	switch access {
	case v1alpha1.AccessPublic:
		return r, nil
	case v1alpha1.AccessAPIKey:
		r.Team = identity.Team
		return r, keyErr
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
func (s *Server) verify(c *call) (Identity, error) {
	switch c.headers.APIKey.Count {
	case 0:
		return Identity{}, ErrBadKey
	case 1:
		return s.o.Keys.Verify(c.stream.Context(), c.headers.APIKey.Value)
	default:
		return Identity{}, errDuplicate
	}
}
