package restapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
	"github.com/sandlane/sandlane/gateway/restapi/sandboxid"
)

// A create:
//
// A create waits at most [createDeadline] for a pod. It ends in one of:
//   - 201: the sandbox runs, its end is as far away as was asked for;
//   - 400, 404, 429, 503, 504: nothing was made;
//   - 500 with "Should-Retry: false": something may have been made and is being
//     ended; no SDK repeats this by itself. The answer to a create may be lost and the
//     sandbox land later, under an ID that no client knows: so the gateway tries to end it
//     for two minutes, and the controller ends it after its startup timeout;
//   - no answer: the client left; [Sandboxes].Create ends what it made.
//
// With an Idempotency-Key a create is, per team and key, running (others with the
// same key wait for it), done (its answer is kept for a day) or forgotten (it
// failed, and the next request tries anew). If the client of a running create
// leaves, one of those that wait makes the sandbox instead. Answers are kept in
// the memory of this process: behind several gateways a repeated create finds its
// answer only on the gateway that made it, and a restart forgets them.

const (
	// createDeadline is how long a create waits for a pod. SDKs give up after 60 s.
	createDeadline = 50 * time.Second
	// settleTimeout bounds what follows a create.
	settleTimeout = 10 * time.Second

	// nearEnough divides a timeout: the end may be off by a hundredth of it.
	nearEnough = 100

	timeoutV1 = 15  // s, of a create that names none
	timeoutV2 = 300 // s
)

// CreateSandbox is POST /sandboxes.
func (s *Server) CreateSandbox(w http.ResponseWriter, r *http.Request, params api.CreateSandboxParams) {
	body := api.NewSandbox{Timeout: new(int64(timeoutV1)), Secure: new(false)}
	s.create(w, r, &body, params.IdempotencyKey)
}

// CreateSandboxV2 is POST /v2/sandboxes: always secured, and with a longer default.
func (s *Server) CreateSandboxV2(w http.ResponseWriter, r *http.Request, params api.CreateSandboxV2Params) {
	body := api.NewSandbox{Timeout: new(int64(timeoutV2))}
	s.create(w, r, &body, params.IdempotencyKey)
}

// create reads the body over the defaults in n. If n.Secure is nil, the sandbox is secured
// whatever the body says.
func (s *Server) create(w http.ResponseWriter, r *http.Request, n *api.NewSandbox, key *string) {
	answer, err := func() ([]byte, error) {
		always := n.Secure == nil
		hash, err := decodeAndHash(r, n)
		if err != nil {
			return nil, err
		}
		if always || n.Secure == nil {
			n.Secure = new(always)
		}
		c := callOf(r)
		if key == nil {
			answer, err := s.make(r.Context(), c, n)
			if err == nil && r.Context().Err() != nil {
				// With a key the answer waits for the client's next try; without one
				// no client would ever know the sandbox.
				if err = s.undo(r.Context(), c.owner.Namespace, c.sandboxID); err == nil {
					err = r.Context().Err()
				}
			}
			return answer, err
		}
		return s.answers.Once(r.Context(), c.owner.Namespace+"/"+c.owner.Team, *key, hash, func() ([]byte, error) {
			return s.make(r.Context(), c, n)
		})
	}()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeBytes(w, http.StatusCreated, answer)
}

// make makes a sandbox and returns the answer.
func (s *Server) make(ctx context.Context, c *call, n *api.NewSandbox) ([]byte, error) {
	if err := supported(n); err != nil {
		return nil, err
	}
	var network api.SandboxNetwork
	if n.Network != nil {
		network = *n.Network
	}
	egress, err := egressOf(n.AllowInternetAccess, network, "network.")
	if err != nil {
		return nil, err
	}
	if _, err := timeoutWithin(defaultLifetime, *n.Timeout); err != nil {
		return nil, err
	}
	template, snapshot, err := s.beginning(ctx, c.owner, n.TemplateID)
	if err != nil {
		return nil, err
	}
	if err := egress.suits(template, "network."); err != nil {
		return nil, err
	}
	timeout, err := timeoutWithin(maxLifetime(template), *n.Timeout)
	if err != nil {
		return nil, err
	}
	made := NewSandbox{
		ID: sandboxid.New(), Namespace: c.owner.Namespace, Team: c.owner.Team, KeyID: c.owner.KeyID, Snapshot: snapshot, SandboxEnv: template.SandboxEnv, Pool: template.Pool,
		Metadata: mapOf(n.Metadata), Env: mapOf(n.EnvVars),
		Private: isPrivate(n), Secure: *n.Secure, Egress: egress, Lifetime: timeout,
	}
	if err := s.setLifecycle(&made, n, template); err != nil {
		return nil, err
	}
	c.sandboxID = made.ID
	sandbox, err := s.start(ctx, made, timeout, maxLifetime(template))
	if err != nil {
		return nil, err
	}
	return encode(s.sandboxView(sandbox, template)), nil
}

// start makes the sandbox with its end a timeout away from when it is ready, not
// from when it was asked for: while the pool is empty that may be most of a
// minute. The first end is far enough away that it cannot pass meanwhile; it is
// moved afterwards if it is off by more than a second and by more than a hundredth
// of the timeout, which for SDKs' default timeout and a warm pool it is not, also in
// a burst where a create takes seconds: one more write for each would make it longer.
func (s *Server) start(ctx context.Context, n NewSandbox, timeout, longest time.Duration) (Sandbox, error) {
	n.EndAt = ceil(time.Now().Add(min(max(timeout, createDeadline+settleTimeout), longest)))
	waiting, cancel := context.WithTimeout(ctx, createDeadline)
	defer cancel()
	sandbox, err := s.o.Sandboxes.Create(waiting, n)
	if err != nil {
		return Sandbox{}, err
	}
	want := ceil(time.Now().Add(timeout))
	near := max(time.Second, timeout/nearEnough)
	if off := want.Sub(n.EndAt); -near <= off && off <= near {
		return sandbox, nil
	}
	settling, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	moved, err := s.o.Sandboxes.SetEnd(settling, n.Namespace, n.ID, want, true)
	if err == nil {
		return moved, nil
	}
	// The client must not get a sandbox that ends at another time than it asked for. The
	// cause is text alone: were it ErrNotFound, the create would be answered with that.
	cause := fmt.Sprintf("set the end of new sandbox %s: %v", n.ID, err)
	if err := s.undo(ctx, n.Namespace, n.ID); err != nil {
		return Sandbox{}, fmt.Errorf("%w: %s; %w", ErrOutcomeUnknown, cause, err)
	}
	return Sandbox{}, errors.New(cause)
}

// undo ends a new sandbox whose ID no client has been told.
func (s *Server) undo(ctx context.Context, namespace, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if err := s.o.Sandboxes.End(ctx, namespace, id); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("end new sandbox %s: %w", id, err)
	}
	return nil
}

func isPrivate(n *api.NewSandbox) bool {
	return n.Network != nil && n.Network.AllowPublicTraffic != nil && !*n.Network.AllowPublicTraffic
}

func mapOf[M ~map[string]string](m *M) map[string]string {
	if m == nil {
		return nil
	}
	return *m
}

// decodeAndHash reads the body into into and returns a hash of the path and of
// what the body says, whatever its spaces and the order of its fields.
func decodeAndHash(r *http.Request, into any) ([sha256.Size]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("read a body from memory: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err := decode(r, into); err != nil {
		return [sha256.Size]byte{}, err
	}
	numbers := json.NewDecoder(bytes.NewReader(body))
	numbers.UseNumber()
	var says any
	if err := numbers.Decode(&says); err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("read a body for the second time: %w", err)
	}
	return sha256.Sum256(append(encode(says), r.URL.Path...)), nil
}
