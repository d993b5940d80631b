package credentials

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

const (
	seedSecret = "token-seed"
	dataSeed   = "seed"
	seedLength = 32 // bytes
	listPage   = 500

	// Each kind of token has a prefix. E2B has none for envd's, which here would
	// let the envd token of a sandbox that a client named "sandbox-traffic-x" be
	// the traffic token of sandbox "x".
	trafficPrefix = "sandbox-traffic-"
	envdPrefix    = "sandbox-envd-"
	uploadPrefix  = "template-upload-"
)

// Tokens derives the tokens of sandboxes from one seed by HMAC-SHA256, as E2B does
// (packages/shared, sandbox_envd_secret.go): the same at every gateway, across
// restarts and resumes, and stored nowhere. Unlike E2B's they depend on the UID of
// the Sandbox object besides its ID: users choose IDs, and an ID that is free again
// may be another team's next. It is safe for concurrent use.
type Tokens struct {
	api       client.Client // must not read from a cache
	namespace string        // the system's own
	seed      atomic.Pointer[[]byte]
}

// NewTokens returns Tokens of a random seed until Load has read the cluster's: no client's
// token is valid, and no sandbox's token is empty. namespace is the system's own. The client
// must not read from a cache.
func NewTokens(c client.Client, namespace string) *Tokens {
	t := &Tokens{api: c, namespace: namespace}
	t.seed.Store(new(randomSeed()))
	return t
}

func randomSeed() []byte {
	seed := make([]byte, seedLength)
	rand.Read(seed) // never fails
	return seed
}

// LoadTokens returns the Tokens of the cluster's seed; see Load.
func LoadTokens(ctx context.Context, c client.Client, namespace string) (*Tokens, error) {
	t := NewTokens(c, namespace)
	if err := t.Load(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// ErrSeedLost means that the seed's Secret is gone and tokens of it are in use.
var ErrSeedLost = errors.New("the seed of tokens is lost")

// Load reads the seed from its Secret. It makes a random one first if there is none. Several
// processes may do so at once: all end up with the same seed, which never changes. It makes none
// while a sandbox runs that may know tokens of another (ErrSeedLost): with a new one no client
// could reach it and no gateway vouch for it.
//
// A gateway calls it at each join, and does not join if it fails: an operator who replaces a
// leaked seed deletes the Secret, and a gateway must not go on with the seed that it remembers.
func (t *Tokens) Load(ctx context.Context) error {
	seed, err := loadSeed(ctx, t.api, t.namespace)
	if err != nil {
		return err
	}
	t.seed.Store(&seed)
	return nil
}

func loadSeed(ctx context.Context, c client.Client, namespace string) ([]byte, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: seedSecret}
	err := c.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		if err := seedNeeded(ctx, c, key); err != nil {
			return nil, err
		}
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: seedSecret},
			Immutable:  new(true),
			Data:       map[string][]byte{dataSeed: randomSeed()},
		}
		if err = c.Create(ctx, secret); apierrors.IsAlreadyExists(err) {
			err = c.Get(ctx, key, secret)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("loading the token seed: %w", err)
	}
	seed := secret.Data[dataSeed]
	if len(seed) != seedLength {
		return nil, fmt.Errorf("Secret %s: token seed has %d bytes, want %d", key, len(seed), seedLength)
	}
	return seed, nil
}

// seedNeeded returns ErrSeedLost if a sandbox is claimed and pods of some pool run
// sandboxd, so that tokens of the lost seed are in use. Pools and templates are read first:
// they are few, and without sandboxd in them no sandbox has to be read. They are read as
// they are now, which may differ from the pods' own: this only keeps an operator's mistake
// from spreading, and no sandbox's end depends on it.
func seedNeeded(ctx context.Context, c client.Client, key client.ObjectKey) error {
	more, err := anySandboxd(ctx, c)
	if err != nil {
		return fmt.Errorf("looking for pods that know tokens: %w", err)
	}
	list := &v1alpha1.SandboxList{}
	for more {
		if err := c.List(ctx, list, client.Limit(listPage), client.Continue(list.Continue)); err != nil {
			return fmt.Errorf("looking for sandboxes that know tokens: %w", err)
		}
		for i := range list.Items {
			if s := &list.Items[i]; s.Spec.End == nil && (s.Spec.Binding != nil || s.Status.StartedAt != nil) {
				return fmt.Errorf("%w: the Secret %s is not there, but sandbox %s is, whose tokens derive from it: restore the Secret, "+
					"or end all sandboxes (kubectl delete sandboxes --all)", ErrSeedLost, key, s.Name)
			}
		}
		more = list.Continue != ""
	}
	return nil
}

// anySandboxd reports whether some pool's or template's pods run sandboxd.
func anySandboxd(ctx context.Context, c client.Client) (bool, error) {
	pools, templates := &v1alpha1.SandboxPoolList{}, &v1alpha1.SandboxTemplateList{}
	if err := errors.Join(c.List(ctx, pools), c.List(ctx, templates)); err != nil {
		return false, err
	}
	for i := range pools.Items {
		if t := pools.Items[i].Spec.Template; t != nil && t.RunsSandboxd() {
			return true, nil
		}
	}
	for i := range templates.Items {
		if templates.Items[i].Spec.RunsSandboxd() {
			return true, nil
		}
	}
	return false, nil
}

// Traffic returns the token that a private sandbox asks for on every port but
// sandboxd's.
func (t *Tokens) Traffic(id string, uid types.UID) string { return t.ofSandbox(trafficPrefix, id, uid) }

// Envd returns the token that sandboxd asks for.
func (t *Tokens) Envd(id string, uid types.UID) string { return t.ofSandbox(envdPrefix, id, uid) }

// Upload signs a permission to upload files of a template.
func (t *Tokens) Upload(message string) string { return t.derive(uploadPrefix + message) }

// ValidTraffic compares a token with the sandbox's traffic token, in constant time.
func (t *Tokens) ValidTraffic(id string, uid types.UID, token string) bool {
	return hmac.Equal([]byte(t.Traffic(id, uid)), []byte(token))
}

// ValidEnvd does the same with the token that sandboxd asks for.
func (t *Tokens) ValidEnvd(id string, uid types.UID, token string) bool {
	return hmac.Equal([]byte(t.Envd(id, uid)), []byte(token))
}

// ofSandbox derives a token of the sandbox with this ID and UID. Without a UID it returns
// random text, which is never valid: a token derived from the ID alone would be the same
// for every later sandbox of the ID, and an empty one would mean that none is asked for.
// Neither an ID nor a UID has a slash, so no two sandboxes share a message.
func (t *Tokens) ofSandbox(prefix, id string, uid types.UID) string {
	if uid == "" {
		return rand.Text()
	}
	return t.derive(prefix + id + "/" + string(uid))
}

func (t *Tokens) derive(message string) string {
	mac := hmac.New(sha256.New, *t.seed.Load())
	mac.Write([]byte(message))
	return hex.EncodeToString(mac.Sum(nil))
}
