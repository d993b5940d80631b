package restapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/sandlane/sandlane/egress/names"
	"github.com/sandlane/sandlane/gateway/restapi/api"
)

// Limits of a secret. Those of metadata are E2B's.
const (
	maxSecretValue                              = 8 << 10
	maxSecretKeys, maxSecretKey, maxSecretEntry = 32, 128, 1024
	maxSecretMetadata                           = 8 << 10
)

// What a [Secrets] says when it refuses.
var (
	ErrNoSecret = errors.New("no such secret")
	// ErrSecretExists: there is one of that name.
	ErrSecretExists = errors.New("the secret exists")
	// ErrSecretBusy: others write it all the time.
	ErrSecretBusy = errors.New("the secret is being written")
	// ErrSecretLimit: the namespace has as many as it may.
	ErrSecretLimit = errors.New("the limit of secrets is reached")
	// ErrNoEgress: no egress process has run, and nothing else could use a secret.
	ErrNoEgress = errors.New("there is no egress process")
)

// Secret is what may be shown of a secret.
type Secret struct {
	// ID has 32 hexadecimal digits; of secrets of one name, one after the other, each has
	// another.
	ID, Name string
	// Version counts its values.
	Version              int64
	Metadata             map[string]string
	CreatedAt, UpdatedAt time.Time
}

// SecretRef names a secret: by its ID or, if that is empty, by its name.
type SecretRef struct{ ID, Name string }

// Secrets keeps values that egress puts into requests. No method returns a value. Safe for
// concurrent use. What is of another namespace is not found.
type Secrets interface {
	Create(ctx context.Context, namespace, name, value string, metadata map[string]string) (Secret, error)
	Get(ctx context.Context, namespace string, of SecretRef) (Secret, error)
	// List returns all secrets of a namespace, in no order.
	List(ctx context.Context, namespace string) ([]Secret, error)
	// Update writes a new version; nil metadata stays as it is.
	Update(ctx context.Context, namespace string, of SecretRef, value string, metadata *map[string]string) (Secret, error)
	Delete(ctx context.Context, namespace string, of SecretRef) error
}

// secretPrefix begins the IDs of secrets, and no name.
const secretPrefix = "sec_"

var secretID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// invalidSecret refuses with E2B's words, and the reason behind them.
func invalidSecret(why string) *refusal {
	return refuse(http.StatusBadRequest, "Invalid secrets request: "+why)
}

// conflictingSecret does so where it is the state of things that does not allow it.
func conflictingSecret(why string) *refusal {
	return refuse(http.StatusConflict, "Secret cannot be modified in its current state: "+why)
}

// secretRefusal is what a client reads of an error of Secrets; nil: it is none.
func secretRefusal(err error) *refusal {
	switch {
	case errors.Is(err, ErrNoSecret):
		return refuse(http.StatusNotFound, "Secret not found")
	case errors.Is(err, ErrSecretExists):
		return conflictingSecret("there is one of this name")
	case errors.Is(err, ErrSecretBusy):
		return conflictingSecret("it is being written by others")
	case errors.Is(err, ErrSecretLimit):
		return conflictingSecret("there are as many secrets as may be, delete one")
	case errors.Is(err, ErrNoEgress):
		return noEgress()
	}
	return nil
}

func noEgress() *refusal {
	return refuse(http.StatusNotImplemented, "Secrets are not supported here: this installation runs no egress process.")
}

// CreateSecret is POST /secrets.
func (s *Server) CreateSecret(w http.ResponseWriter, r *http.Request) {
	var body api.NewSecret
	s.secret(w, r, http.StatusCreated, &body, func() (Secret, error) {
		name, err := names.SecretName(body.Name)
		if err != nil {
			return Secret{}, invalidSecret("name: " + err.Error())
		}
		metadata := mapOf(body.Metadata)
		if err := goodSecret(body.Value, metadata); err != nil {
			return Secret{}, err
		}
		return s.o.Secrets.Create(r.Context(), callOf(r).owner.Namespace, name, body.Value, metadata)
	})
}

// GetSecret is GET /secrets/{secretID}.
func (s *Server) GetSecret(w http.ResponseWriter, r *http.Request, text string) {
	s.secret(w, r, http.StatusOK, nil, func() (Secret, error) {
		of, err := secretRef(text)
		if err != nil {
			return Secret{}, err
		}
		return s.o.Secrets.Get(r.Context(), callOf(r).owner.Namespace, of)
	})
}

// UpdateSecret is POST /secrets/{secretID}.
func (s *Server) UpdateSecret(w http.ResponseWriter, r *http.Request, text string) {
	var body api.SecretUpdate
	s.secret(w, r, http.StatusOK, &body, func() (Secret, error) {
		of, err := secretRef(text)
		if err != nil {
			return Secret{}, err
		}
		if err := goodSecret(body.Value, mapOf(body.Metadata)); err != nil {
			return Secret{}, err
		}
		return s.o.Secrets.Update(r.Context(), callOf(r).owner.Namespace, of, body.Value, body.Metadata)
	})
}

// DeleteSecret is DELETE /secrets/{secretID}.
func (s *Server) DeleteSecret(w http.ResponseWriter, r *http.Request, text string) {
	of, err := secretRef(text)
	switch {
	case err != nil:
	case s.o.Secrets == nil:
		err = noEgress()
	default:
		err = s.o.Secrets.Delete(r.Context(), callOf(r).owner.Namespace, of)
	}
	s.done(w, r, err)
}

// ListSecrets is GET /secrets.
func (s *Server) ListSecrets(w http.ResponseWriter, r *http.Request, params api.ListSecretsParams) {
	page, next, err := func() ([]Secret, string, error) {
		if s.o.Secrets == nil {
			return nil, "", noEgress()
		}
		all, err := s.o.Secrets.List(r.Context(), callOf(r).owner.Namespace)
		if err != nil {
			return nil, "", err
		}
		return newestPage(all, func(one Secret) (time.Time, string) { return one.CreatedAt, one.ID }, params.NextToken, params.Limit)
	}()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if next != "" {
		w.Header().Set("X-Next-Token", next)
	}
	views := make([]api.Secret, 0, len(page))
	for _, one := range page {
		views = append(views, secretView(one))
	}
	writeJSON(w, http.StatusOK, views)
}

// secret answers with what do returns, once body has the request's.
func (s *Server) secret(w http.ResponseWriter, r *http.Request, status int, body any, do func() (Secret, error)) {
	one, err := func() (Secret, error) {
		if body != nil {
			if err := decode(r, body); err != nil {
				return Secret{}, err
			}
		}
		if s.o.Secrets == nil {
			return Secret{}, noEgress()
		}
		return do()
	}()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, status, secretView(one))
}

// secretRef reads what a client names: what begins like an ID is no name, as at E2B.
func secretRef(text string) (SecretRef, error) {
	if id, is := strings.CutPrefix(strings.ToLower(strings.TrimSpace(text)), secretPrefix); is {
		if !secretID.MatchString(id) {
			return SecretRef{}, invalidSecret("it is no secret's ID")
		}
		return SecretRef{ID: id}, nil
	}
	name, err := names.SecretName(text)
	if err != nil {
		return SecretRef{}, invalidSecret(err.Error())
	}
	return SecretRef{Name: name}, nil
}

// goodSecret refuses what no header can have, and what is too much.
func goodSecret(value string, metadata map[string]string) error {
	switch {
	case value == "" || len(value) > maxSecretValue:
		return invalidSecret(fmt.Sprintf("value: must have 1 to %d bytes", maxSecretValue))
	case !httpguts.ValidHeaderFieldValue(value):
		return invalidSecret("value: must be one line without control characters, since it becomes a part of a header")
	case len(metadata) > maxSecretKeys:
		return invalidSecret(fmt.Sprintf("metadata: must not have more than %d entries", maxSecretKeys))
	}
	size := 0
	for key, text := range metadata {
		if len(key) > maxSecretKey || len(text) > maxSecretEntry {
			return invalidSecret(fmt.Sprintf("metadata: a key must not have more than %d bytes, a value not more than %d", maxSecretKey, maxSecretEntry))
		}
		size += len(key) + len(text)
	}
	if size > maxSecretMetadata {
		return invalidSecret(fmt.Sprintf("metadata: must not have more than %d bytes", maxSecretMetadata))
	}
	return nil
}

// ofSecrets reports whether a request is about secrets, and so its refusal begins with E2B's
// words.
func (c *call) ofSecrets() bool { return slices.Contains(c.route.Operation.Tags, "secrets") }

func secretView(one Secret) api.Secret {
	metadata := one.Metadata
	if metadata == nil {
		metadata = map[string]string{}
	}
	return api.Secret{
		SecretID: secretPrefix + one.ID, Name: one.Name, CurrentVersion: one.Version, Metadata: metadata,
		CreatedAt: one.CreatedAt.UTC(), UpdatedAt: one.UpdatedAt.UTC(),
	}
}
